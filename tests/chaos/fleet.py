"""A fleet for some minutes: nodes are told to go at random and others come, the driver is killed once, and the ensemble answers all the time.

`python -m tests.chaos.fleet --minutes 10` needs nothing but this machine: a head and three nodes are raylets on it. Twelve chains
run on the nodes, two replicas of `raychains serve` answer from the samples that are there when they start, and two
clients ask without a pause. At the end every sample must have the bytes of an undisturbed chain, no request may have
failed, and all must have been answered from the same number of samples.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from raychains.chain.chain import Chain
from raychains.core.sample import Sample, tensors_sha256
from raychains.core.spec import ChainSpec
from raychains.planning import Comparison
from raychains.store import ChainStore, RunStore, Storage
from raychains.store.chains import preemptions
from tests.chaos.leaving import Node, node
from tests.processes import RAYCHAINS, free_ports, outside, until
from tests.serve.client import ask

CHAINS, NODES, CPUS, REPLICAS = 12, 3, 2, 2
"""Of each node so many CPUs; replicas take one each, chains have the others."""
FAULT_EVERY = (25.0, 45.0)
"""Seconds from one node's notice to the next one's."""
CLIENTS = 2
WINDOW = 10.0
"""Seconds in which requests are counted."""


@dataclass
class Asked:
    """Requests by two clients: when each was answered, and those that were not answered well."""

    url: str
    began: float = field(default_factory=time.monotonic)
    answered: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the beginning, and seconds that the answer took."""
    failed: list[tuple[float, str]] = field(default_factory=list)
    samples: Counter[int] = field(default_factory=Counter)
    """Answers by the number of samples that gave them."""
    over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        """Ask until it is over."""
        while not self.over.is_set():
            began = time.monotonic()
            try:
                reply = ask(self.url, {"inputs": [[0.5] * 64]}, timeout=60.0)
                ok = reply.status == 200 and abs(sum(reply.json["probabilities"][0]) - 1) < 1e-4
                text = "" if ok else f"{reply.status}: {reply.body[:200]!r}"
            except OSError as error:
                ok, text = False, repr(error)
            now = time.monotonic()
            if ok:
                self.answered.append((now - self.began, now - began))
                self.samples[reply.json["samples"]] += 1
            else:
                self.failed.append((now - self.began, text))
            time.sleep(0.02)

    def to_json(self) -> dict[str, Any]:
        """Return counts, latencies in seconds, and the requests of the worst window."""
        latencies = sorted(took for _, took in self.answered)
        whole = int(self.answered[-1][0] // WINDOW)
        windows = Counter(int(at // WINDOW) for at, _ in self.answered)
        return {
            "requests": len(latencies),
            "failed": len(self.failed),
            "why": [f"{at:.1f} s: {text}" for at, text in self.failed[:5]],
            "requests_per_second": round(len(latencies) / self.answered[-1][0], 1),
            "fewest_per_second_in_10_s": min(windows[w] for w in range(whole)) / WINDOW if whole else None,
            "median_latency": round(latencies[len(latencies) // 2], 4),
            "p99_latency": round(latencies[int(len(latencies) * 0.99)], 4),
            "worst_latency": round(latencies[-1], 3),
            "samples": [min(self.samples), max(self.samples)],
        }


class Fleet:
    """The nodes, of which some are told to go and others come."""

    def __init__(self, address: str, rng: random.Random) -> None:
        self.address, self.rng = address, rng
        self.nodes: list[Node] = []
        self.leaving: list[Node] = []
        self.told = 0

    def add(self) -> None:
        """Start one more."""
        self.nodes.append(node(self.address, CPUS, f"n{len(self.nodes) + len(self.leaving)}"))

    def replace(self) -> None:
        """Tell one to go, and start another in its place."""
        gone = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        gone.send_signal(signal.SIGTERM)
        self.leaving.append(gone)
        self.told += 1
        self.add()

    def close(self) -> None:
        for process in [*self.nodes, *self.leaving]:
            with contextlib.suppress(psutil.NoSuchProcess):
                for each in (*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
            process.wait(60)


def hashes(spec: ChainSpec) -> dict[int, str]:
    """sha256 of the samples of an undisturbed chain, by their index."""
    return {e.meta.index: tensors_sha256(e.tensors) for e in Chain(spec) if isinstance(e, Sample)}


@contextlib.contextmanager
def cluster(temporary: str) -> Iterator[Cluster]:
    head = {"num_cpus": 0, "object_store_memory": 200_000_000, "include_dashboard": False, "temp_dir": temporary}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        made.shutdown()


def scenario(folder: Path, minutes: float, epochs: int, seed: int, tell: Any) -> dict[str, Any]:
    """Let it happen; return what was counted."""
    rng, store = random.Random(seed), folder / "store"
    run = [
        "run",
        "--task",
        "digits",
        "--name",
        "fleet",
        "--store",
        str(store),
        "--chains",
        str(CHAINS),
        "--epochs",
        str(epochs),
    ]
    run += ["--seed", str(seed), "--checkpoint-every", "1min", "--repeats", "1", "--resume"]
    run += ["--concurrent", str(CPUS * NODES - REPLICAS - 1)]  # room for a replica that moves
    with (
        tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary,
        cluster(temporary) as made,
        contextlib.ExitStack() as stack,
    ):
        fleet = Fleet(made.address, rng)
        stack.callback(fleet.close)
        for _ in range(NODES):
            fleet.add()
            time.sleep(5)  # two that start at once take the same ports

        def start(*words: str, name: str) -> subprocess.Popen[str]:
            log = stack.enter_context((folder / f"{name}.log").open("a"))
            process = subprocess.Popen(
                [*RAYCHAINS, *words, "--address", made.address], stdout=log, stderr=log, text=True, env=outside()
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        driver = start(*run, name="driver")
        root = Storage(store)
        plan = RunStore(root, "fleet")
        until(plan.exists, "the plan", every=0.5)
        specs = Comparison.from_json(plan.plan()["comparison"]).chains()

        def samples() -> int:
            return sum(len(ChainStore(root, digest).records()) for digest in specs)

        until(samples, "the first sample", every=0.5)
        [port] = free_ports(1)
        # One door, as a load balancer is: by default every node listens, and here all would share one port.
        here = ["--http-host", "127.0.0.1", "--http-port", str(port), "--proxy-location", "HeadOnly"]
        tool = [str(Path(sys.executable).with_name("serve")), "start", "--address", made.address, *here]
        subprocess.run(tool, env=outside(), check=True, capture_output=True)
        start("serve", f"{store}/runs/fleet", "--port", str(port), "--replicas", "2", name="serve")
        asked = Asked(f"http://127.0.0.1:{port}/")

        def up() -> bool:
            with contextlib.suppress(OSError):
                return ask(f"{asked.url}healthz", timeout=10.0).status == 200
            return False

        until(up, "the first answer", every=0.5)
        tell("the ensemble answers")
        asked.began = time.monotonic()
        clients = [threading.Thread(target=asked.ask, daemon=True) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        end, killed = time.monotonic() + 60 * minutes, 0
        kill_at = time.monotonic() + 60 * minutes * rng.uniform(0.2, 0.5)
        while time.monotonic() < end:
            time.sleep(min(rng.uniform(*FAULT_EVERY), max(0.0, end - time.monotonic())))
            if time.monotonic() > kill_at and not killed and driver.poll() is None:
                driver.kill()
                driver.wait()
                killed = 1
                time.sleep(rng.uniform(1, 5))
                driver = start(*run, name="driver")
                tell("the driver was killed and called again")
            elif time.monotonic() < end:
                fleet.replace()
                tell(
                    f"node {fleet.told} is told to go; {samples()} samples, {len(asked.answered)} answers, {len(asked.failed)} failed"
                )
        after = driver.poll() is None
        status = driver.wait()
        asked.over.set()
        for client in clients:
            client.join()
        tell("the run is through; undisturbed chains follow")
        found = {digest: {r.meta.index: r.sha256 for r in ChainStore(root, digest).records()} for digest in specs}
        attempts = [ChainStore(root, digest).attempts() for digest in specs]
    with ProcessPoolExecutor() as pool:
        expected = dict(zip(specs, pool.map(hashes, specs.values()), strict=True))
    return {
        "minutes": minutes,
        "chains": len(specs),
        "steps": sum(spec.steps for spec in specs.values()),
        "nodes_told_to_go": fleet.told,
        "driver_killed": killed,
        "driver_status": status,
        "run_went_on_throughout": after,
        "attempts": sum(map(len, attempts)),
        "preemptions": sum(map(preemptions, attempts)),
        "samples": sum(map(len, found.values())),
        "samples_equal": found == expected,
        "serving": asked.to_json(),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for which nodes are told to go")
    parser.add_argument("--epochs", type=int, default=2000, help="of each chain: they should take longer than that")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, help="file for the result")
    options = parser.parse_args(argv)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        try:
            found = scenario(Path(folder), options.minutes, options.epochs, options.seed, tell)
        except BaseException:
            for log in Path(folder).glob("*.log"):
                print(f"{log.name}:\n{log.read_text()[-3000:]}", file=sys.stderr)
            raise
    text = json.dumps(found, indent=1)
    print(text)
    if options.to:
        options.to.write_text(text + "\n")
    serving = found["serving"]
    well = found["samples_equal"] and not serving["failed"] and len({*serving["samples"]}) == 1
    return 0 if well and found["driver_status"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
