"""Requests a second and latencies of a served ensemble, over a plain FastAPI server that runs the samples one after
another.

Both servers are up throughout and are asked in turn, on the same cores as the clients; the figure is the median over
the rounds of the ratio of requests a second. A request is one input as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)] * (str(ROOT) not in sys.path)

import numpy as np  # noqa: E402
import torch  # noqa: E402

from benchmarks.machine import facts  # noqa: E402
from raychains import models  # noqa: E402
from raychains.inference import file, networks  # noqa: E402

GOAL = 3.0
NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "digits MLP 64-100-100-10": (
        {"name": "mlp", "settings": {"inputs": 64, "hidden": [100, 100], "outputs": 10}},
        (64,),
    ),
    "MLP 784-400-400-10": ({"name": "mlp", "settings": {"inputs": 784, "hidden": [400, 400], "outputs": 10}}, (784,)),
    "LeNet, 28×28": ({"name": "lenet", "settings": {}}, (1, 28, 28)),
}
PATIENCE = 600.0
"""Seconds that a server may take to be up."""

SETTLES = 5.0
"""Seconds for which HAProxy, once it is up, may still replace itself and drop connections."""


def export(path: Path, network: dict[str, Any], shape: tuple[int, ...], samples: int) -> None:
    """Write an ensemble of freshly initialised networks as `raychains export` does."""
    made = []
    for s in range(samples):
        torch.manual_seed(s)
        made.append(models.build(network["name"], **network["settings"]).state_dict())
    about = {
        "run": "benchmark",
        "arm": "benchmark",
        "task": {"kind": "benchmark"},
        "kind": "classification",
        "preparation": None,
        "network": {**network, "revision": models.revision(network["name"])},
        "shared": [],
        "samples": [],
        "input": {"shape": list(shape), "dtype": "float32"},
    }
    file.write(path, made, samples, shared={}, dtype=None, about=about)


def plain(path: str, port: int) -> None:
    """Serve a file as one would by hand: FastAPI, and a loop over networks."""
    import uvicorn
    from fastapi import FastAPI

    about = file.describe(path)
    stacked, _ = file.tensors(path, about, "cpu")
    members = []
    for s in range(len(next(iter(stacked.values())))):
        member = networks.rebuild(about["network"], path, False).to_empty(device="cpu")
        member.load_state_dict({name: t[s] for name, t in stacked.items()})
        members.append(member.eval())
    app = FastAPI()

    @app.post("/")
    def predict(body: dict[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            x = torch.tensor(body["inputs"])
            p = torch.stack([torch.softmax(member(x), -1) for member in members])
            mean = p.mean(0)
            entropy = torch.special.entr(mean).sum(-1)
            information = entropy - torch.special.entr(p).sum(-1).mean(0)
        return {
            "probabilities": mean.tolist(), "entropy": entropy.tolist(), "mutual_information": information.tolist()
        }  # fmt: skip

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error", access_log=False)


@contextlib.contextmanager
def server(*command: str, port: int, **environment: str) -> Iterator[None]:
    """A server in a process of its own, from when it answers on."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"a server did not start: {log.read().decode()[-2000:]}")
                time.sleep(0.2)
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5).status == 200
    return False


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def client(port: int, body: bytes, until: float, seconds: list[float]) -> None:
    """Ask again and again on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    while (began := time.perf_counter()) < until:
        writer.write(request)
        told = await reader.readuntil(b"\r\n\r\n")
        assert told.startswith(b"HTTP/1.1 200"), told
        (length,) = [line.split(b":")[1] for line in told.lower().split(b"\r\n") if line.startswith(b"content-length")]
        await reader.readexactly(int(length))
        seconds.append(time.perf_counter() - began)
    writer.close()


def asked(port: int, bodies: list[bytes], duration: float) -> tuple[float, float, float]:
    """Return requests a second, and median and 99th percentile of the latency in ms, of as many clients as bodies."""
    seconds: list[float] = []

    async def run() -> float:
        began = time.perf_counter()
        await asyncio.gather(*(client(port, body, began + duration, seconds) for body in bodies))
        return time.perf_counter() - began

    took = asyncio.run(run())
    return len(seconds) / took, 1e3 * median(seconds), 1e3 * float(np.quantile(seconds, 0.99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--network", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--haproxy", action="store_true", help="Ray's HAProxy, which listens on every interface")
    parser.add_argument("--smoke", action="store_true", help="only show that it runs")
    parser.add_argument("--plain", nargs=2, metavar=("FILE", "PORT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        plain(options.plain[0], int(options.plain[1]))
        return
    print(facts(), flush=True)
    names = options.network[:1] if options.smoke else options.network
    rounds, duration = (1, 0.5) if options.smoke else (options.rounds, options.seconds)
    print(
        f"{options.samples} samples, {options.clients} clients on the same cores; goal: at least {GOAL:g} ×", flush=True
    )
    for name in names:
        network, shape = NETWORKS[name]
        with tempfile.TemporaryDirectory() as folder:
            path, ports = Path(folder) / "ensemble", (free_port(), free_port())
            export(path, network, shape, options.samples)
            rng = np.random.default_rng(0)
            inputs = [rng.random((1, *shape)).round(3).tolist() for _ in range(options.clients)]
            bodies = [json.dumps({"inputs": one}).encode() for one in inputs]
            ours = ["-m", "raychains.cli", "serve", str(path), "--port", str(ports[1])]
            ours += ["--host", "0.0.0.0"] * options.haproxy
            how = {"RAY_SERVE_ENABLE_HA_PROXY": "1"} if options.haproxy else {}
            with (
                server(str(Path(__file__)), "--plain", str(path), str(ports[0]), port=ports[0]),
                server(*ours, port=ports[1], **how),
            ):
                time.sleep(SETTLES * options.haproxy)
                for port in ports:  # both are warm
                    asked(port, bodies, duration / 5)
                found = [[asked(port, bodies, duration) for port in ports] for _ in range(rounds)]
        print(f"\n{name}")
        for which, title in enumerate(("plain FastAPI", "raychains serve")):
            rate, middle, slow = (median(r[which][i] for r in found) for i in range(3))
            print(f"  {title:<16}{rate:8.1f} requests/s   median {middle:7.1f} ms   p99 {slow:7.1f} ms")
        ratios = sorted(ours[0] / theirs[0] for theirs, ours in found)
        told = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"  {median(ratios):.2f} × as many requests (rounds {told}); load after: {os.getloadavg()[0]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
