"""`rc.serve`: a run's or a file's ensemble as an application of Ray Serve, and the command `raychains serve`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from raychains.core.config import Serve
from raychains.core.errors import UserError, check_gone, renamed, require, shown
from raychains.core.options import make, options_of
from raychains.core.ports import check_free, is_loopback
from raychains.core.user_code import import_folders

if TYPE_CHECKING:
    from torch import nn

    from raychains.inference.ensemble_source import Source

__all__ = ["app", "deployment"]

INSTALL = 'serve needs Ray Serve: pip install "raychains[serve]"'
CLUSTER_OPTIONS = ("host", "port", "name", "route_prefix", "address", "object_store_memory")
"""Options of the command that are not the deployment's, but Serve's and Ray's."""


def deployment(
    source: str | Path,
    *,
    arm: str | None = None,
    group: int = 0,
    first: int | None = None,
    replicas: int = 1,
    cpus_per_replica: int = 1,
    gpus_per_replica: float = 0.0,
    max_batch_size: int = 64,
    batch_wait: float | str = 0.005,
    max_body: int = 16_777_216,
    data_root: str | None = None,
    model: nn.Module | None = None,
    trust: bool = False,
) -> Any:
    """Return an application of Ray Serve whose replicas hold one ensemble, for `serve.run` or ``serve run module:app``.

    The ensemble is the source's as it is now; another call takes newer samples of a run that still goes on.

    Args:
        source: a file of `raychains export`, or a run, STORE/runs/NAME, finished or not. Every replica's node must see
            it.
        arm: of a run: the arm's name; default the first.
        group: of a run: which group of repeats, from 0.
        first: of a run: take this many samples, the first draws of all chains first; default all that are there.
        replicas: processes that hold the ensemble.
        cpus_per_replica: CPU cores, and threads of torch, of each.
        gpus_per_replica: GPUs of each, or a fraction of one.
        max_batch_size: inputs that are predicted at once, of one request or of several.
        batch_wait: time that a request waits for others to be predicted with it: seconds, or a text such as "1s".
        max_body: most bytes of a request's body.
        data_root: of a run: folder with the data sets; default as for `raychains.run`.
        model: of a file: the network, where the file names none of `raychains.models`.
        trust: import the modules that the run or the file names, which runs their code.

    Example: ``serve.run(rc.serve.deployment("digits.safetensors"))``

    Raises:
        UserError: no such file or run, a setting out of range, or the extra ``serve`` is not installed.
    """
    given = dict(locals())
    del given["model"]
    return _application(make(Serve, given), model)


def app(options: Mapping[str, Any]) -> Any:
    """Return `deployment` (**options), as Serve's configurations call it: ``import_path: raychains.api.serve:app``.

    Values that are texts are read as the command line reads them, so that ``serve run raychains.api.serve:app
    source=FILE max_batch_size=8`` works.

    Raises:
        UserError: as `deployment`, or an argument that it does not have.
    """
    known = {name: option for name, option in options_of(Serve).items() if name not in CLUSTER_OPTIONS}
    values = {
        name: known[name].parsed([value])
        if name in known and isinstance(value, str) and known[name].types != (bool,)
        else value
        for name, value in options.items()
    }
    if values.get("trust") in ("true", "True"):
        values["trust"] = True
    for name in values:
        if name not in known:
            check_gone("serve", name)
            raise UserError(f"unknown argument {shown(name)}: there are {', '.join(known)}")
    return _application(make(Serve, values), None)


def _orchestration() -> ModuleType:
    """Return the module that imports Ray Serve.

    Raises:
        UserError: the extra is not installed.
    """
    try:
        from raychains.orchestration import serve_deployment
    except ImportError as error:
        if (error.name or "").split(".")[0] == "raychains":
            raise
        raise UserError(INSTALL) from None
    return serve_deployment


def _application(options: Serve, model: nn.Module | None) -> Any:
    return _bound(options, _source(options, model))


def _source(options: Serve, model: nn.Module | None = None) -> Source:
    """Return the source that the options name, with the samples that are there now."""
    from raychains.inference.ensemble_source import source_of

    _orchestration()
    from raychains.orchestration.cluster.resource_config import check_share

    gpus = options.gpus_per_replica
    require(gpus == 0 or 1e-4 <= gpus <= 1e6, "gpus_per_replica", gpus, "be 0 or lie in [0.0001, 1000000]")
    check_share(gpus, "gpus_per_replica")
    names = ("arm", "group", "first", "data_root", "trust")
    with renamed({"run": "source", "file": "source"}):
        return source_of(options.source, model=model, **{name: getattr(options, name) for name in names})


def _bound(options: Serve, source: Source) -> Any:
    orchestration = _orchestration()
    config = orchestration.ReplicaConfig(
        source=source,
        gpu=options.gpus_per_replica > 0,
        max_batch_size=options.max_batch_size,
        batch_wait=float(options.batch_wait),
        max_body=options.max_body,
        folders=import_folders() if options.trust else (),
    )
    settings = {"replicas": options.replicas, "cpus": options.cpus_per_replica, "gpus": options.gpus_per_replica}
    return orchestration.application(config, **settings)


def run(options: Serve, *, say: Callable[[str], Any]) -> None:
    """Serve until the process is interrupted: the command `raychains serve`.

    Args:
        options: of the command.
        say: called with a line once requests are answered, and with one before where that takes long.

    Raises:
        UserError: as `deployment`, a port that is taken, a route prefix that is none, or replicas that no node holds.
        RayLost: Ray did not start, or is gone.
        KeyboardInterrupt: the process was asked to end.
    """
    from raychains.orchestration.cluster import session

    prefix = options.route_prefix
    ok = prefix.startswith("/") and (prefix == "/" or not prefix.endswith("/")) and not set("{}?#") & set(prefix)
    require(ok, "route_prefix", prefix, "be a path that begins with / and does not end with it, as in /digits")
    if os.environ.get("RAY_SERVE_ENABLE_HA_PROXY") == "1":
        ok = options.host == "0.0.0.0"
        require(
            ok, "host", options.host, "be 0.0.0.0 with RAY_SERVE_ENABLE_HA_PROXY=1: HAProxy listens on every interface"
        )
    source = _source(options)
    if session.address_of(options.address) == "local":
        check_free(options.host, options.port)
    orchestration = _orchestration()
    os.environ.setdefault(orchestration.READY_VARIABLE, orchestration.READY_WITHIN)
    joined = session.connect(options.address, object_store_memory=options.object_store_memory)
    try:
        orchestration.check_room(options.replicas, cpus=options.cpus_per_replica, gpus=options.gpus_per_replica)
        how = {"name": options.name, "route_prefix": prefix, "host": options.host, "port": options.port, "say": say}
        if not is_loopback(options.host):
            say(
                f"warning: --host {options.host}: whoever reaches port {options.port} may ask for predictions, without "
                "a login; to keep others out put a proxy with a login in front of it"
            )
        with orchestration.running(_bound(options, source), **how) as url:
            say(f"ready: {url} (model card; POST inputs there; Ctrl-C ends)")
            orchestration.wait(options.name)
    finally:
        joined.close()
