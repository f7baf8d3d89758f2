"""A fleet for some minutes: nodes are told to go at random and others come, the driver is killed once, and the ensemble
answers all the time.

`python -m tests.chaos.fleet --minutes 10` needs nothing but this machine: a head and three nodes are raylets on it.
Twelve chains run on the nodes, two replicas of `raychains serve` answer from the samples that are there when they
start, and two clients ask without a pause until the last node that was told to go is gone. The first of these nodes has
a chain, the second one a replica. At the end every sample must have the bytes of an undisturbed chain, no request may
have failed, and all must have been answered from the same number of samples.
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
from collections.abc import Callable
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
from raychains.store.chain_store import preemptions
from tests.chaos.leaving import Node, end, node
from tests.cluster.machines import cluster
from tests.processes import RAYCHAINS, free_ports, outside, until
from tests.serve.client import ask

CHAINS, NODES, CPUS, REPLICAS = 12, 3, 2, 2
"""Of each node so many CPUs; replicas take one each, chains have the others."""
FAULT_EVERY = (25.0, 45.0)
"""Seconds from one node's notice to the next one's."""
FAST = 450
"""Steps of a chain before any pause: of 400 epochs more than up to the first sample."""
CLIENTS = 2
PATIENCE = 300.0
"""Seconds that a client waits for an answer: on a busy machine replicas take long to start."""
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
                reply = ask(self.url, {"inputs": [[0.5] * 64]}, timeout=PATIENCE)
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
    """The nodes, of which some are told to go and others come.

    Args:
        chains: the processes that run chains now.
    """

    def __init__(self, made: Cluster, rng: random.Random, chains: Callable[[], set[int]]) -> None:
        self.cluster, self.rng, self.chains = made, rng, chains
        self.nodes: list[Node] = []
        self.leaving: list[Node] = []

    @property
    def told(self) -> int:
        return len(self.leaving)

    def add(self) -> str:
        """Start one more; its label."""
        label = f"n{len(self.nodes) + len(self.leaving)}"
        self.nodes.append(node(self.cluster.address, CPUS, label))
        return label

    def add_first(self) -> None:
        """Start those of the beginning, one after another: two that start at once take the same ports."""
        for _ in range(NODES):
            label = self.add()
            until(lambda label=label: self._is_up(label), "the node", every=0.1)  # type: ignore[misc]

    def _is_up(self, label: str) -> bool:
        return any(n["Alive"] and label in n["Resources"] for n in self.cluster.global_state.node_table())

    def replace(self) -> None:
        """Tell one to go, and start another in its place."""
        until(self._candidates, "a node with a chain, or with a replica", every=0.2)
        gone = self.rng.choice(self._candidates() or self.nodes)
        self.nodes.remove(gone)
        gone.send_signal(signal.SIGTERM)
        self.leaving.append(gone)
        self.add()

    def _candidates(self) -> list[Node]:
        """Nodes of which one goes next: the first has a chain, the second one a replica, later ones are any."""
        if self.told > 1:
            return self.nodes
        serving = [n for n in self.nodes if any(_title(p).startswith("ray::ServeReplica") for p in _below(n))]
        if self.told == 1:
            return serving
        chains = self.chains()
        busy = [n for n in self.nodes if any(p.pid in chains for p in _below(n))]
        return [n for n in busy if n not in serving] or busy

    def wait_for_the_last(self) -> None:
        """Wait until all that were told are gone."""
        until(lambda: all(n.poll() is not None for n in self.leaving), "the end of the nodes", every=0.2)

    def close(self) -> None:
        for process in [*self.nodes, *self.leaving]:
            end(process)


def _below(of: Node) -> list[psutil.Process]:
    """A node's processes."""
    try:
        return psutil.Process(of.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def hashes(spec: ChainSpec) -> dict[int, str]:
    """sha256 of the samples of an undisturbed chain, by their index."""
    return {e.meta.index: tensors_sha256(e.tensors) for e in Chain(spec) if isinstance(e, Sample)}


def scenario(folder: Path, options: argparse.Namespace, tell: Any) -> dict[str, Any]:
    """Let it happen; return what was counted."""
    seed, minutes, store, slow = options.seed, options.minutes, folder / "store", folder / "slow"
    rng = random.Random(seed)
    task = ["--task", "digits"]
    if options.pause:
        slow.touch()
        settings = ("--task-settings", f"file={slow}", f"fast={FAST}", f"pause={options.pause}")
        task = ["--task", "tests.chaos.tasks:Paced", *settings]
    concurrent = CPUS * NODES - REPLICAS - 1  # room for a replica that moves
    about = (
        f"--chains {options.chains} --epochs {options.epochs} --seed {seed} --concurrent {concurrent} "
        "--checkpoint-every 1min --repeats 1 --resume"
    )
    run = ["run", *task, "--name", "fleet", "--store", str(store), *about.split()]
    with (
        tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as temporary,
        cluster(temporary, object_store_memory=200_000_000, _system_config={}) as made,
        contextlib.ExitStack() as stack,
    ):
        root = Storage(store)
        specs: dict[str, ChainSpec] = {}

        def attempts() -> list[dict[int, dict[str, Any]]]:
            return [ChainStore(root, digest).attempts() for digest in specs]

        def chains() -> set[int]:
            newest = (list(of.values())[-1] for of in attempts() if of)
            return {attempt["pid"] for attempt in newest if "pid" in attempt}

        def preempted() -> int:
            return sum(map(preemptions, attempts()))

        fleet = Fleet(made, rng, chains)
        stack.callback(fleet.close)
        fleet.add_first()

        def start(*words: str, name: str) -> subprocess.Popen[str]:
            log = stack.enter_context((folder / f"{name}.log").open("a"))
            process = subprocess.Popen(
                [*RAYCHAINS, *words, "--address", made.address], stdout=log, stderr=log, text=True, env=outside()
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        driver = start(*run, name="driver")
        plan = RunStore(root, "fleet")
        until(plan.exists, "the plan", every=0.5)
        specs |= Comparison.from_json(plan.plan()["comparison"]).chains()

        def samples() -> int:
            return sum(len(ChainStore(root, digest).records()) for digest in specs)

        until(samples, "the first sample", every=0.1)
        [port] = free_ports(1)
        # One door, as a load balancer is: by default every node listens, and here all would share one port.
        here = ["--http-host", "127.0.0.1", "--http-port", str(port), "--proxy-location", "HeadOnly"]
        tool = [str(Path(sys.executable).with_name("serve")), "start", "--address", made.address, *here]
        subprocess.run(tool, env=outside(), check=True, capture_output=True)
        trust = ["--trust"] if options.pause else []
        serve = start("serve", f"{store}/runs/fleet", "--port", str(port), "--replicas", "2", *trust, name="serve")
        asked = Asked(f"http://127.0.0.1:{port}/")

        def up() -> bool:
            assert serve.poll() is None, "it does not serve"
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
        while time.monotonic() < end or fleet.told < options.nodes or (not killed and driver.poll() is None):
            time.sleep(rng.uniform(*options.every))
            if time.monotonic() > kill_at and not killed and driver.poll() is None:
                driver.kill()
                driver.wait()
                killed = 1
                time.sleep(rng.uniform(1, 5))
                driver = start(*run, name="driver")
                tell("the driver was killed and called again")
            elif time.monotonic() < end or fleet.told < options.nodes:
                fleet.replace()
                tell(
                    f"node {fleet.told} is told to go; {samples()} samples, {len(asked.answered)} answers, "
                    f"{len(asked.failed)} failed"
                )
                if fleet.told == 1:
                    until(preempted, "its chain on another node", every=0.2)
        after = driver.poll() is None
        slow.unlink(missing_ok=True)
        status = driver.wait()
        fleet.wait_for_the_last()
        asked.over.set()
        for client in clients:
            client.join()
        tell("the run is through; undisturbed chains follow")
        found = {digest: {r.meta.index: r.sha256 for r in ChainStore(root, digest).records()} for digest in specs}
        made_attempts, left = sum(map(len, attempts())), preempted()
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
        "attempts": made_attempts,
        "preemptions": left,
        "samples": sum(map(len, found.values())),
        "samples_equal": found == expected,
        "serving": asked.to_json(),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.fleet", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for which nodes are told to go")
    parser.add_argument("--epochs", type=int, default=2000, help="of each chain: they should take longer than that")
    parser.add_argument("--nodes", type=int, default=2, help="that are told to go at least, however long that takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument(
        "--every", type=float, nargs=2, default=FAULT_EVERY, help="seconds from one fault to the next one"
    )
    parser.add_argument(
        "--pause", type=float, default=0.0, help="seconds of a step while nodes go, however fast the machine"
    )
    parser.add_argument("--to", type=Path, help="file for the result")
    options = parser.parse_args(argv)
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        try:
            found = scenario(Path(folder), options, tell)
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
