"""A Ray Serve deployment of one ensemble: requests over HTTP, predicted in batches."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.schema import ApplicationStatusOverview
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from raychains.coordination.capacity import fit
from raychains.core import gpus, tree
from raychains.core.errors import RayLost, UserError, format_error, last_line
from raychains.core.user_code import import_from
from raychains.inference import model_card, requests
from raychains.inference.ensemble_source import Source
from raychains.inference.requests import Accepted, Answer, InputForm, Question, Refused
from raychains.orchestration.cluster import ray_private, ray_watch
from raychains.orchestration.cluster.ray_workers import RayWorkers

log = logging.getLogger(__name__)

QUEUED = 4
"""Batches of single inputs that a replica may hold, so that the next one is full while one is predicted."""
LEAST_ONGOING = 100
"""Requests that a replica takes at once at least: some clients send their bodies slowly."""
MOST_ARRIVING = LEAST_ONGOING // 2
"""Bodies that a replica reads at once; the other places are for requests whose bodies are whole."""
BODY_WITHIN = 60.0
"""Seconds that a request's body may take to arrive."""
LONG = 65_536
"""Bytes of a body, or numbers of an answer, from which on a thread reads, or writes, it: other requests do not wait."""
STARTS = 3
"""Times that Serve tries to start a replica before it gives the application up."""
LOOK_EVERY = 0.5
"""Seconds between looks at Ray, and at the application while it starts."""
GONE_EVERY = 2.0
"""Seconds between looks whether a running application is still there."""
PATIENCE = 20.0
"""Seconds after which an application that has not started says how far it is."""
HEALTH_PERIOD = 2.0
"""Seconds between Serve's looks whether a replica lives; its own default is 10."""
READY_VARIABLE, READY_WITHIN = "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "60"
"""Seconds that Serve's proxy may take to start where Ray is started here; Serve's own 5 are few on a busy machine."""
TOGETHER = "X-Raychains-Batch"
"""Header of an answer: the number of inputs that were predicted together."""
METHODS = {"/": ("GET", "HEAD", "POST"), "/healthz": ("GET", "HEAD")}
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
PAGE_HEADERS = {**HEADERS, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig:
    """A replica's resources and limits."""

    source: Source
    gpu: bool
    """It has a GPU, or a share of one."""
    max_batch_size: int
    batch_wait: float
    """Seconds."""
    max_body: int
    """Bytes."""
    folders: tuple[str, ...] = ()
    """Folders that users' modules are imported from."""


@dataclass(frozen=True)
class Predicted:
    """One question's answer, and how it came about."""

    answer: Answer | Refused
    together: int
    """Inputs that were predicted together."""


def rows(questions: Sequence[Question]) -> int:
    """Return the number of inputs in a batch."""
    return sum(tree.size(question.inputs) for question in questions)


class Predictor:
    """The replicas' class: holds one ensemble and answers requests with it.

    Raises:
        UserError: the ensemble cannot be loaded.
    """

    def __init__(self, config: ReplicaConfig) -> None:
        import_from(config.folders)
        self._config = config
        self._arriving: list[asyncio.Timeout] = []
        device = gpus.best().type if config.gpu else "cpu"
        self._posterior, self._about = config.source.load(device)
        self._accepted = Accepted(
            kind=self._posterior.kind,
            form=InputForm.of(self._about.get("input")),
            images=self._posterior.prepare is not None,
            rows=config.max_batch_size,
        )
        batched: Any = self._predict
        batched.set_max_batch_size(config.max_batch_size)
        batched.set_batch_wait_timeout_s(config.batch_wait)

    @serve.batch(batch_size_fn=rows)  # type: ignore[untyped-decorator,unused-ignore]
    async def _predict(self, questions: list[Question]) -> list[Predicted]:
        """Return each question's answer."""
        answers = await asyncio.to_thread(requests.answer, self._posterior, questions)
        return [Predicted(answer, rows(questions)) for answer in answers]

    async def __call__(self, request: Request) -> Response:
        """Answer one request of HTTP."""
        try:
            return await self._respond(request)
        except Refused as refused:
            return _error(refused.status, str(refused))
        except ClientDisconnect:
            return _error(400, "body must be whole: the connection was closed")
        except Exception:
            log.exception("a request failed")
            return _error(500, "the request failed; the reason is in the log of the replica")

    async def _respond(self, request: Request) -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", "").rstrip("/")) or "/"
        if path not in METHODS:
            raise Refused(404, f"path must be one of {', '.join(METHODS)}")
        if request.method not in METHODS[path]:
            allowed = ", ".join(METHODS[path])
            return _error(405, f"method must be one of {allowed}", {"Allow": allowed})
        if path == "/healthz":
            return _json({"status": "ok", "samples": len(self._posterior)})
        if request.method != "POST":
            return _card(request, self._about, self._accepted)
        body = await read_body(request, self._config.max_body, self._arriving)
        told = body, request.headers.get("content-type", ""), dict(request.query_params), self._accepted
        question = await _threaded(len(body) > LONG, requests.parse, *told)
        predicted: Any = await self._predict(question)
        answer = predicted.answer
        if isinstance(answer, Refused):
            raise answer
        long = sum(array.size for array in answer.values()) > LONG
        accept = request.headers.get("accept", "")
        data, kind = await _threaded(long, requests.encode, answer, len(self._posterior), accept)
        return Response(data, media_type=kind, headers={**HEADERS, TOGETHER: str(predicted.together)})


async def _threaded(threaded: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    return await asyncio.to_thread(function, *arguments) if threaded else function(*arguments)


async def read_body(request: Request, most: int, arriving: list[asyncio.Timeout]) -> bytes:
    """Return a request's body, of which no more is read than may be sent.

    ``arriving`` are the time limits of all bodies that are being read, the oldest first. Beyond `MOST_ARRIVING` of them
    the oldest body is refused, so that clients that send slowly take no other's place.

    Raises:
        Refused: it is longer (413), or does not arrive (408; 503 where others were waiting).
    """
    too_long = Refused(413, f"body must have at most {most:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise too_long
    body = bytearray()
    limit = asyncio.timeout(BODY_WITHIN)
    try:
        async with limit:
            arriving.append(limit)
            if len(arriving) > MOST_ARRIVING:
                arriving.pop(0).reschedule(0)
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_long
    except TimeoutError:
        if limit in arriving:
            raise Refused(408, f"body must arrive within {BODY_WITHIN:.0f} s") from None
        raise Refused(503, f"body must arrive faster: {MOST_ARRIVING} others are arriving; send it again") from None
    finally:
        if limit in arriving:
            arriving.remove(limit)
    return bytes(body)


def _card(request: Request, about: Mapping[str, Any], accepted: Accepted) -> Response:
    url = model_card.address(request.headers.get("host", ""), request.scope.get("root_path", ""))
    card = model_card.card(about, accepted, url)
    if requests.JSON in request.headers.get("accept", "").lower():
        return _json(card)
    return Response(model_card.page(card), media_type="text/html", headers=PAGE_HEADERS)


def _json(value: Any) -> Response:
    return Response(json.dumps(value), media_type=requests.JSON, headers=HEADERS)


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    text = json.dumps({"error": message}, ensure_ascii=False)
    return Response(text, status_code=status, media_type=requests.JSON, headers={**HEADERS, **(headers or {})})


def application(config: ReplicaConfig, *, replicas: int, cpus: float, gpus: float) -> Any:
    """Return the Serve application of one deployment.

    Args:
        config: what each replica needs.
        replicas: number of replicas.
        cpus: CPU cores of each.
        gpus: GPUs of each, or a fraction of one.
    """
    deployment = serve.deployment(
        name="posterior",
        num_replicas=replicas,
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        max_ongoing_requests=max(LEAST_ONGOING, QUEUED * config.max_batch_size),
        health_check_period_s=HEALTH_PERIOD,
        max_constructor_retry_count=STARTS,
    )(Predictor)
    return deployment.bind(config)


def check_room(replicas: int, *, cpus: float, gpus: float) -> None:
    """Raise `UserError` where the connected cluster cannot hold the replicas, and adds no nodes for them."""
    cluster = RayWorkers()
    nodes = cluster.nodes()
    room = fit(nodes, cpus, gpus).chains
    if room < replicas and not cluster.grows():
        has = ", ".join(f"{node.cpus:g} CPUs and {node.gpus:g} GPUs" for node in nodes)
        for kind, each in (("cpus", cpus), ("gpus", gpus)):
            most = max((getattr(node, kind) for node in nodes), default=0)
            if each > most:
                allowed = f"be at most {most:g}, the most of one node"
                raise UserError(f"{kind}_per_replica must {allowed}, got {each:g}: the cluster has {has}")
        raise UserError(
            f"replicas must be at most {room}, got {replicas} of {cpus:g} CPUs and {gpus:g} GPUs each: the cluster "
            f"has {has}"
        )


@contextlib.contextmanager
def running(
    app: Any, *, name: str, route_prefix: str, host: str, port: int, say: Callable[[str], Any]
) -> Iterator[str]:
    """Run an application on the connected Ray in the body, which is given its address; ``say`` is told where that takes
    long.

    A Serve that runs on the cluster already is used, with its host and port, and stays; one that is started here is
    shut down, unless it has other applications by then.

    Raises:
        UserError: the application does not start, or another one has its route prefix.
        RayLost: Ray is gone, or Serve does not start.
    """
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    quiet = {"log_level": "WARNING", "enable_access_log": False}
    before = serve.status()
    there = bool(before.proxies or before.applications)
    try:
        if not there:
            _start({"host": host, "port": port}, quiet)
        target = serve.RunTarget(app, name=name, route_prefix=route_prefix, logging_config=quiet)
        try:
            serve.run_many([target], wait_for_applications_running=False)
        except RayServeException as error:
            raise UserError(
                f"route_prefix must be one that no other application has, got {route_prefix!r}: {format_error(error)}"
            ) from None
        _wait(name, say)
        yield _url(*((there and ray_private.serve_address()) or (host, port)), route_prefix)
    finally:
        if ray_watch.lost() is None:
            _end(name, ours=not there)


def _start(http_options: dict[str, Any], logging_config: dict[str, Any]) -> None:
    """Start Serve on the connected Ray.

    Raises:
        RayLost: Ray is gone, or a process of Serve's did not start in the time that Ray allows.
    """
    try:
        serve.start(http_options=http_options, logging_config=logging_config)
    except (RayError, RayServeException, TimeoutError, RuntimeError) as error:
        ray_watch.check()
        raise RayLost(
            f"Ray Serve did not start: {format_error(error)} Where the machine is busy, repeat the command when it is "
            f"not; on a cluster give Serve's proxy longer: {READY_VARIABLE}={READY_WITHIN} as Ray starts"
        ) from None


def _wait(name: str, say: Callable[[str], Any]) -> None:
    """Wait until an application runs.

    Raises:
        UserError: it failed to start; the last line of Serve's report says why.
        RayLost: Ray is gone.
    """
    patient = time.monotonic() + PATIENCE
    while True:
        ray_watch.check()
        found = serve.status().applications.get(name)
        if found is not None and found.status == "RUNNING":
            return
        if found is not None and found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            messages = [one.message for one in found.deployments.values() if one.message] or [found.message]
            raise UserError(f"source must be one that replicas can load: {_reason(messages[0])}")
        if found is not None and time.monotonic() > patient:
            patient = math.inf
            say(_progress(found))
        time.sleep(LOOK_EVERY)


def _progress(found: ApplicationStatusOverview) -> str:
    """Return how many replicas of an application run, and what Ray has left for the others."""
    states = [one.replica_states for one in found.deployments.values()]
    up, asked = sum(s.get("RUNNING", 0) for s in states), sum(sum(s.values()) for s in states)
    whole, free = ray.cluster_resources(), ray.available_resources()
    left = " and ".join(f"{free.get(kind, 0):g} of {whole[kind]:g} {kind}s" for kind in ("CPU", "GPU") if kind in whole)
    return f"waiting: {up} of {asked} replicas run; {left} of the cluster are free (others may hold the rest)"


def _reason(message: str) -> str:
    """Return the line of Serve's report that names the exception."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line]
    return last_line("\n".join(named or lines))


def _url(host: str, port: int, route_prefix: str) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{route_prefix.rstrip('/')}/"


def _end(name: str, *, ours: bool) -> None:
    """End an application, and a Serve that was started here, unless others have applications on it."""
    try:
        others = set(serve.status().applications) - {name}
        if ours and not others:
            serve.shutdown()
        else:
            serve.delete(name)
    except Exception as error:  # Ray went meanwhile, or Serve has not started yet
        log.debug("Serve did not end: %s", format_error(error, kind=True))


def _there(name: str) -> bool:
    try:
        return name in serve.status().applications
    except Exception as error:  # Ray goes, which is noticed elsewhere
        log.debug("Serve does not answer: %s", format_error(error, kind=True))
        return True


def wait(name: str) -> None:
    """Wait until the process is interrupted.

    Raises:
        RayLost: Ray is gone, or the application is.
    """
    while True:
        ray_watch.check()
        if not ray_watch.ask(lambda: _there(name)):
            raise RayLost(f"application {name!r} is gone: somebody deleted it, or shut Serve down")
        time.sleep(GONE_EVERY)
