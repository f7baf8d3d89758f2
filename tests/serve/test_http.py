"""`raychains serve` as a process and `rc.serve.deployment` in this one: real replicas, asked over HTTP."""

from __future__ import annotations

import io
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import raychains as rc
import raychains.orchestration
from raychains.cli import main
from raychains.core.errors import RayLost
from raychains.core.ports import is_loopback
from raychains.inference import PosteriorPredictive
from raychains.store import ChainStore
from tests.checks import refused
from tests.inference.runs import digits
from tests.processes import RAYCHAINS, SECONDS, free_ports, outside, sessions, until
from tests.serve.client import NPY, Reply, ask, npy, regression_file
from tests.serve.test_source import begun, continued, images
from tests.tasks.test_trees import Attention, batch_of, padded, sentences

pytestmark = pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # in Ray Serve
FEW = 16


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> rc.Result:
    return digits(tmp_path_factory.mktemp("served") / "store")


def compare(reply: Reply, posterior: PosteriorPredictive, x: torch.Tensor) -> None:
    """Check that a reply says what the ensemble says of the inputs."""
    assert reply.status == 200, reply.body
    with torch.inference_mode():
        expected = posterior(x)
    for name in ("probabilities", "entropy", "mutual_information"):
        np.testing.assert_allclose(reply.json[name], getattr(expected, name), atol=1e-5, err_msg=name)
    assert reply.json["samples"] == len(posterior)


# The command, on a run that goes on


@dataclass(frozen=True)
class Served:
    process: subprocess.Popen[str]
    url: str
    path: str
    """Of the run, which has three of its eight samples at first."""
    temporary: Path
    """Where Ray's folder is."""

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture(scope="module")
def served(run: rc.Result) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp") as folder, sessions(cwd=folder) as start:
        path = begun(run, Path(folder) / "store", 3)
        temporary, (port,) = Path(folder) / "t", free_ports(1)
        temporary.mkdir()
        command = [*RAYCHAINS, "serve", path, "--port", str(port), "--max-batch-size", str(FEW)]
        command += ["--batch-wait", "1s", "--max-body", "100000", "--object-store-memory", "100000000"]
        process = start(*command, env=outside() | {"RAY_TMPDIR": str(temporary)})
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "raychains serve: starting\n"
        url = f"http://127.0.0.1:{port}/"
        line = process.stdout.readline()
        assert line == f"ready: {url} (model card; POST inputs there; Ctrl-C ends)\n", process.stderr.read()
        yield Served(process, url, path, temporary)


def test_predictions_are_the_ensembles(served: Served, run: rc.Result) -> None:
    posterior, x = ensemble_of_first(run, 3), images()[:FEW]
    compare(ask(served.url, {"inputs": x.tolist()}), posterior, x)
    compare(ask(served.url, npy(x.numpy()), NPY), posterior, x)
    raw = ask(served.url, npy(x.numpy()), NPY, Accept="application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(raw.body)), posterior(x).probabilities, atol=1e-5)
    asked = ask(served.url, {"inputs": x.tolist(), "intervals": 0.5}).json
    low, high = np.moveaxis(np.array(asked["intervals"]), -1, 0)
    assert low.shape == (FEW, 10) and (low <= high).all() and (low < high).any()
    assert ask(f"{served.url}?intervals=0.5", npy(x.numpy()), NPY).json["intervals"] == pytest.approx(
        np.array(asked["intervals"]), abs=1e-5
    )


def ensemble_of_first(run: rc.Result, samples: int) -> PosteriorPredictive:
    """The ensemble of the first chain's first samples."""
    digest = run.comparison.arms[0].chains[0][0].digest
    store, model = ChainStore(run.store.root, digest), rc.make_task("digits").build_model(seed=0, lanes=1)
    return PosteriorPredictive(model, [store.sample(r.file)[0] for r in store.records()[:samples]])


def test_clients_of_one_input_each_are_predicted_together(served: Served, run: rc.Result) -> None:
    posterior, x = ensemble_of_first(run, 3), images()
    with ThreadPoolExecutor(len(x)) as clients:
        replies = list(clients.map(lambda one: ask(served.url, {"inputs": [one.tolist()]}), x))
    for one, reply in zip(x, replies, strict=True):
        compare(reply, posterior, one[None])
    together = [int(reply.headers["x-raychains-batch"]) for reply in replies]
    assert len(x) > FEW >= max(together) > 1, together


def test_health_card_and_its_example(served: Served) -> None:
    assert ask(f"{served.url}healthz").json == {"status": "ok", "samples": 3}
    page = ask(served.url)
    assert page.headers["content-type"].startswith("text/html") and b"3 samples" in page.body
    card = ask(served.url, Accept="application/json").json
    assert card["input"]["shape"] == ["n", 64] and len(card["digests"]) == 3
    if shutil.which("curl"):
        done = subprocess.run(["bash", "-c", card["example"]], capture_output=True, text=True, timeout=SECONDS)
        assert '"probabilities": [[' in done.stdout, done.stderr


def test_each_wrong_request_has_its_status_and_its_line(served: Served) -> None:
    """One of each status; test_requests has all lines."""
    x = images()[:1].tolist()
    wrong = [
        (ask(f"{served.url}predict"), 404, "path must be one of /, /healthz"),
        (ask(served.url, method="DELETE"), 405, "method must be one of GET, HEAD, POST"),
        (ask(f"{served.url}healthz", {}), 405, "method must be one of GET, HEAD"),
        (ask(served.url, b"inputs=1", "text/plain"), 415, "Content-Type must be application/json"),
        (ask(served.url, b"{"), 400, "body must be JSON: "),
        (ask(served.url, {"inputs": [[1, 2]]}), 400, "inputs must have the shape [n, 64], got [1, 2]"),
        (ask(served.url, {"inputs": x * (FEW + 1)}), 413, f"inputs must be at most {FEW} in one request"),
        (ask(f"{served.url}?level=1", npy(np.array(x)), NPY), 400, "unknown field 'level'"),
    ]
    for reply, status, line in wrong:
        assert reply.status == status and reply.error.startswith(line), (reply, line)
    assert ask(served.url, method="DELETE").headers["allow"] == "GET, HEAD, POST"


def test_a_body_that_is_too_long_is_not_read_to_its_end(served: Served) -> None:
    port = int(served.url.rstrip("/").rpartition(":")[2])
    for head in ("Content-Length: 1000000000", "Transfer-Encoding: chunked"):
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            connection.sendall(
                f"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{head}\r\n\r\n".encode()
            )
            if "chunked" in head:  # more than is taken, and never the last one
                for _ in range(3):
                    connection.sendall(b"%x\r\n" % 50_000 + b"0" * 50_000 + b"\r\n")
            reply = connection.recv(65536)
        assert reply.startswith(b"HTTP/1.1 413 "), reply
    assert ask(f"{served.url}healthz").status == 200


def test_clients_that_send_slowly_keep_nobody_out(served: Served) -> None:
    port = int(served.url.rstrip("/").rpartition(":")[2])
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(300)]
        for connection in slow:
            connection.sendall(head)
        slow[0].settimeout(SECONDS)
        assert slow[0].recv(65536).startswith(b"HTTP/1.1 503 ")
        began, status = time.monotonic(), 503
        while status == 503:  # while the 300 still arrive, a quick body may be told to come again too
            status = ask(served.url, {"inputs": images()[:FEW].tolist()}).status  # a full batch waits for nobody
            assert time.monotonic() - began < 30
        assert status == 200


def test_it_ends_when_it_is_told_to_and_leaves_nothing(served: Served) -> None:
    left = served.descendants()
    assert len(left) >= 5 and any(served.temporary.iterdir())
    served.process.send_signal(signal.SIGTERM)
    out, errors = served.process.communicate(timeout=SECONDS)
    assert served.process.returncode == 130 and errors.splitlines()[-1] == "raychains: interrupted"
    assert "Traceback" not in out + errors
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in left), "the end of all")
    assert list(served.temporary.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        ask(served.url)


# Wrong command lines


def test_each_wrong_command_line_has_its_line(
    run: rc.Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words, line in [
            (["nothing"], "SOURCE must be an existing file of raychains export, or a run, STORE/runs/NAME, got "),
            ([f"{run.path}x"], "SOURCE must be one of the runs in "),
            ([run.path, "--arm", "x"], "--arm must be one of "),
            ([run.path, "--port", "0"], "--port must be an integer in [1, 65535], got 0"),
            ([run.path, "--port", port], f"--port must be one that is free and may be used, got {port}: Address"),
            ([run.path, "--host", "192.0.2.1"], "--host must be an address of this machine, got '192.0.2.1'"),
            ([run.path, "--refresh", "10s"], "--refresh was removed in this version: use a new server"),
            ([run.path, "--batch-wait", "soon"], "--batch-wait must be a finite number above 0"),
            ([run.path, "--route-prefix", "x/"], "--route-prefix must be a path that begins with /"),
            ([run.path, "--max-batch-size", "0"], "--max-batch-size must be an integer of at least 1, got 0"),
        ]:
            assert main(["serve", *words]) == 2
            errors = capsys.readouterr().err.splitlines()
            assert len(errors) == 1 and errors[0].startswith(f"raychains: {line}"), errors


def test_a_proxy_that_listens_on_every_interface_needs_a_host_that_says_so(
    run: rc.Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "1")
    assert main(["serve", run.path]) == 2
    line = (
        "raychains: --host must be 0.0.0.0 with RAY_SERVE_ENABLE_HA_PROXY=1, got '127.0.0.1': HAProxy listens on "
        "every interface\n"
    )
    assert capsys.readouterr().err == line


def test_a_host_that_others_reach_is_warned_of() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "127.8.8.8"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "192.0.2.1"]))


def test_a_serve_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a starved machine: Ray kills Serve's proxy, or gives it up."""
    from ray import serve
    from ray.exceptions import ActorDiedError

    from raychains.orchestration.serve_deployment import running

    nothing = SimpleNamespace(proxies={}, applications={})
    monkeypatch.setattr(serve, "status", lambda: nothing)
    monkeypatch.setattr(serve, "shutdown", lambda: None)
    how: dict[str, Any] = {"name": "x", "route_prefix": "/", "host": "127.0.0.1", "port": 8000, "say": print}
    for error in (ActorDiedError(), TimeoutError("HTTP proxies not available after 60s.")):

        def start(**_: Any) -> None:
            raise error  # noqa: B023

        monkeypatch.setattr(serve, "start", start)
        with pytest.raises(RayLost, match=r"did not start: .*busy") as lost, running(None, **how):
            pass
        assert "\n" not in str(lost.value)


def test_without_ray_serve_it_says_what_to_install(
    run: rc.Result, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ["starlette", *(name for name in sys.modules if name.startswith("starlette."))]:
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "raychains.orchestration.serve_deployment", raising=False)
    monkeypatch.delattr(raychains.orchestration, "serve_deployment", raising=False)
    assert main(["serve", run.path]) == 2
    assert capsys.readouterr().err == 'raychains: serve needs Ray Serve: pip install "raychains[serve]"\n'


@pytest.mark.parametrize(
    ("replicas", "cpus", "gpus", "room"),
    [(1, 2, 0.0, 1), (2, 1, 0.0, 2), (3, 1, 0.0, 2), (1, 3, 0.0, 0), (1, 1, 0.5, 0)],
)
def test_replicas_that_no_node_holds_are_refused(
    ray_session: None, replicas: int, cpus: int, gpus: float, room: int
) -> None:
    from raychains.orchestration.serve_deployment import check_room

    if replicas <= room:
        check_room(replicas, cpus=cpus, gpus=gpus)
        return
    line = f"replicas must be at most {room}, got {replicas} of {cpus} CPUs and {gpus:g} GPUs each"
    if room == 0:
        name, value, most = ("gpus", gpus, 0) if gpus else ("cpus", cpus, 2)
        line = f"{name}_per_replica must be at most {most}, the most of one node, got {value:g}"
    with refused(line, "the cluster has 2 CPUs"):
        check_room(replicas, cpus=cpus, gpus=gpus)


# The deployment, of a file, on a Ray that is there


@pytest.fixture(scope="module")
def serving(ray_session: None) -> Iterator[str]:
    """The address of a Serve of this process's Ray, which ends with this file."""
    from ray import serve

    (port,) = free_ports(1)
    quiet = {"log_level": "ERROR", "enable_access_log": False}
    serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config=quiet)
    yield f"http://127.0.0.1:{port}/"
    serve.shutdown()


@pytest.mark.long
def test_a_replica_waits_for_what_others_hold_says_so_and_predicts_concurrent_requests_together(
    serving: str, run: rc.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    from raychains.orchestration import serve_deployment

    others = ray.util.placement_group([{"CPU": 2}])
    ray.get(others.ready())
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        ray.util.remove_placement_group(others)

    monkeypatch.setattr(serve_deployment, "PATIENCE", 1.0)
    file = run.export(str(tmp_path / "d.safetensors")).path
    app = rc.serve.deployment(file, max_batch_size=8, batch_wait=2.0)
    host, _, port = serving.strip("/").rpartition("/")[2].partition(":")
    with serve_deployment.running(app, name="late", route_prefix="/late", host="0.0.0.0", port=1, say=say) as url:
        assert url == f"http://{host}:{port}/late/", "where the Serve that runs already listens"
        assert said == ["waiting: 0 of 1 replicas run; 0 of 2 CPUs of the cluster are free (others may hold the rest)"]
        concurrent_requests_are_predicted_together(url.rstrip("/"), run.posterior())
        taken = serve_deployment.running(app, name="other", route_prefix="/late", host=host, port=int(port), say=say)
        with refused("route_prefix must be one that no other application has, got '/late'"), taken:
            pass
        serve_deployment._end("nobody", ours=True)  # Serve stays, since others have an application on it
        assert ask(f"{url}healthz").status == 200
    with pytest.raises(RayLost, match="application 'late' is gone: somebody deleted it"):
        serve_deployment.wait("late")
    assert len(said) == 1


def concurrent_requests_are_predicted_together(url: str, posterior: PosteriorPredictive) -> None:
    """As many as a batch holds, and a full batch waits for nobody."""
    x = images()[:12]
    assert ask(f"{url}/healthz").status == 200 and ask(f"{url}/x").status == 404
    assert f"{url}/ " in ask(url, Accept="application/json").json["example"]
    with ThreadPoolExecutor(12) as clients:
        replies = list(clients.map(lambda one: ask(url, {"inputs": [one.tolist()]}), x))
    for one, reply in zip(x, replies, strict=True):
        compare(reply, posterior, one[None])
    together = [int(reply.headers["x-raychains-batch"]) for reply in replies]
    assert max(together) > 1 and max(together) <= 8, together
    began = time.monotonic()
    full = ask(url, {"inputs": x[:8].tolist()})
    assert full.headers["x-raychains-batch"] == "8" and time.monotonic() - began < 2, "a full batch waits for nobody"


@pytest.mark.long
def test_a_replica_that_is_killed_is_replaced_by_one_with_the_same_samples(
    serving: str, run: rc.Result, tmp_path: Path
) -> None:
    from ray import serve

    path = begun(run, tmp_path / "store", 3)
    serve.run(rc.serve.deployment(path, max_batch_size=FEW), name="digits", route_prefix="/digits")
    url, x = f"{serving}digits", {"inputs": images()[:FEW].tolist()}
    continued(run, path)
    until(lambda: len(replicas()) == 1, "the end of replicas of other applications")
    (before,) = replicas().values()
    before.kill()
    statuses: list[int] = []

    def answered() -> bool:
        statuses.append(ask(url, x).status)
        return statuses[-1] == 200

    until(answered, "an answer")
    assert all(status == 200 or status >= 500 for status in statuses)
    until(lambda: ask(url, x).status == 200 and len(replicas().keys() - {before.pid}) == 1, "another replica")
    assert before.pid not in replicas()
    compare(ask(url, x), ensemble_of_first(run, 3), images()[:FEW])
    assert len(ask(url, Accept="application/json").json["digests"]) == 3
    serve.delete("digits")


def replicas() -> dict[int, psutil.Process]:
    """Those of this process's Ray, by their ids."""
    found = psutil.Process().children(recursive=True)
    return {p.pid: p for p in found if p.name().startswith("ray::ServeRepl")}


@pytest.mark.long
def test_a_regression_of_a_configuration(serving: str, tmp_path: Path) -> None:
    from ray import serve

    from raychains.api.serve import app

    posterior = regression_file(tmp_path / "line")
    options = {"source": str(tmp_path / "line"), "max_batch_size": "4"}
    serve.run(app(options), name="line", route_prefix="/line")
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    found = ask(f"{serving}line", {"inputs": x.tolist(), "quantiles": [0.1, 0.9]}).json
    with torch.inference_mode():
        expected = posterior(x)
    np.testing.assert_allclose(found["mean"], expected.mean[:, 0], atol=1e-5)
    np.testing.assert_allclose(found["sd"], expected.variance[:, 0].sqrt(), atol=1e-5)
    assert np.array(found["quantiles"]).shape == (3, 2) and found["samples"] == len(posterior)
    serve.delete("line")


@pytest.mark.long
def test_inputs_of_several_arrays_are_an_object(serving: str, tmp_path: Path) -> None:
    """Sentences of unequal length, of which each request has a length of its own."""
    from ray import serve

    settings: dict[str, Any] = {"epochs": 10, "chains": 1, "backend": "process", "progress": False}
    result = rc.run(task=padded(), store=str(tmp_path), **settings)
    path = result.export(str(tmp_path / "words")).path
    serve.run(rc.serve.deployment(path, model=Attention(), max_batch_size=8), name="words", route_prefix="/words")
    for at in (slice(4), slice(4, 7)):
        batch = batch_of(sentences()[at])
        body = {"inputs": {name: batch[name].tolist() for name in ("ids", "mask")}}
        found = ask(f"{serving}words", body)
        assert found.status == 200, found.body
        np.testing.assert_allclose(found.json["probabilities"], result.predict(batch), atol=1e-5)
    wrong = ask(f"{serving}words", {"inputs": [[1, 2]]})
    assert wrong.status == 400 and "inputs must be an object with 'ids' and 'mask'" in wrong.json["error"]
    serve.delete("words")


def test_a_configuration_is_checked(tmp_path: Path) -> None:
    from raychains.api.serve import app

    regression_file(tmp_path / "line")
    source = {"source": str(tmp_path / "line")}
    for options, line in [
        ({**source, "port": "80"}, "unknown argument 'port'"),
        ({**source, "refresh": "1min"}, "refresh was removed in this version: use a new server"),
        ({**source, "max_batch_size": "many"}, "max_batch_size must be an integer, got 'many'"),
        ({}, "source must be given"),
    ]:
        with refused(line):
            app(options)
    with refused("replicas must be an integer of at least 1, got 0"):
        rc.serve.deployment(tmp_path / "line", replicas=0)
