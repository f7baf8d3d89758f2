"""What a file for `ray up` must be: Ray's own validation, and what that misses."""

from __future__ import annotations

import copy
import io
import re
import subprocess
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any

import yaml

from tests.launcher import constraints
from tests.launcher.constraints import ROOT
from tests.processes import SECONDS

FILES = ("cluster.yaml", "deploy/clusters/gcp.yaml", "deploy/clusters/onprem.yaml")
STORE = re.compile(r"\bRAYCHAINS_STORE=(s3://|gs://|/)\S+")


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text())


def problems(config: dict[str, Any]) -> list[str]:
    """Everything that is wrong with it, in words; nothing for a good one."""
    return [*_refused(config), *_machines(config), *_files(config), *_commands(config)]


def _refused(config: dict[str, Any]) -> list[str]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    quiet = io.StringIO()
    try:
        with redirect_stdout(quiet), redirect_stderr(quiet):
            validate_config(prepare_config(copy.deepcopy(config)))
    except BaseException as error:  # SystemExit of Ray's command line too
        return [f"Ray refuses it: {str(error).splitlines()[0] if str(error) else error!r}"]
    return []


def _machines(config: dict[str, Any]) -> list[str]:
    provider = config.get("provider", {})
    kind = provider.get("type")
    if kind == "local":
        lacking = [f"provider.{k} is missing" for k in ("head_ip", "worker_ips") if not provider.get(k)]
        none = "--num-cpus=0" in " ".join(config.get("head_start_ray_commands", []))
        return lacking + ([] if none else ["the head gives CPUs to chains"])
    needs = {"aws": ("region", "availability_zone"), "gcp": ("region", "availability_zone", "project_id")}[kind]
    found = [f"provider.{k} is missing" for k in needs if not provider.get(k)]
    if not config.get("idle_timeout_minutes", 0) > 0:
        found.append("idle_timeout_minutes is missing")
    types, head = config.get("available_node_types", {}), config.get("head_node_type")
    for name, node in types.items():
        found += [f"{name}: {p}" for p in _node(kind, node)]
        resources = node.get("resources", {})
        if name == head:
            found += [f"{name}: the head gives {r} to chains" for r in ("CPU", "GPU") if resources.get(r, r == "CPU")]
            continue
        found += [f"{name}: resources.{r} is not written" for r in ("CPU", "GPU") if not resources.get(r)]
        if not 0 <= node.get("min_workers", 0) <= node.get("max_workers", 0) <= config.get("max_workers", 0):
            found.append(f"{name}: min_workers ≤ max_workers ≤ the cluster's does not hold")
    spot = {name: _is_spot(node) for name, node in types.items() if name != head}
    if set(spot.values()) != {False, True}:
        found.append("spot and on-demand workers are not both there")
    elif min(types[n].get("priority", 0) for n, s in spot.items() if s) <= max(
        types[n].get("priority", 0) for n, s in spot.items() if not s
    ):
        found.append("spot workers are not preferred")
    return found


def _node(kind: str, node: dict[str, Any]) -> list[str]:
    config = node.get("node_config", {})
    if kind == "aws":
        keys = ("InstanceType", "ImageId", "IamInstanceProfile")
        return [f"node_config.{k} is missing" for k in keys if not config.get(k)]
    found = [] if config.get("machineType") else ["node_config.machineType is missing"]
    image = [d.get("initializeParams", {}).get("sourceImage") for d in config.get("disks", []) if d.get("boot")]
    return found + ([] if image and all(image) else ["node_config.disks have no image to boot"])


def _is_spot(node: dict[str, Any]) -> bool:
    config = node.get("node_config", {})
    market = config.get("InstanceMarketOptions", {}).get("MarketType")
    return market == "spot" or config.get("scheduling", {}).get("provisioningModel") == "SPOT"


def _files(config: dict[str, Any]) -> list[str]:
    mounts = config.get("file_mounts", {})
    found = []
    for remote, local in mounts.items():
        if local != "~/.ray/auth_token" and not (ROOT / local).exists():
            found.append(f"file_mounts: {local} does not exist")
        if not remote.startswith("~/"):
            found.append(f"file_mounts: {remote} does not lie in the home folder")
    if mounts.get("~/.ray/auth_token") != "~/.ray/auth_token":
        found.append("the token does not reach the nodes")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    build = ["pyproject.toml", "constraints.txt", "raychains", project["readme"], *project["license-files"]]
    return found + [f"file_mounts lack {f}" for f in build if f"~/raychains/{f}" not in mounts]


def _commands(config: dict[str, Any]) -> list[str]:
    setup = [*config.get("setup_commands", []), *config.get("head_setup_commands", [])]
    head, worker = config.get("head_start_ray_commands", []), config.get("worker_start_ray_commands", [])
    found = [f"no shell command: {c}" for c in [*setup, *head, *worker] if not _parses(c)]
    for command in setup:
        found += constraints.problems(command, "~/raychains/constraints.txt", "~/raychains")
    every = "\n".join(setup)
    if not re.search(r"pip install .*~/raychains(\s|$)", every, flags=re.M):
        found.append("raychains itself is not installed")
    for needed, pattern in {
        "a shared store": STORE,
        "token authentication": re.compile(r"\bRAY_AUTH_MODE=token\b"),
        "a token that only its owner reads": re.compile(r"chmod 600 ~/\.ray/auth_token"),
    }.items():
        if not pattern.search(every):
            found.append(f"setup_commands lack {needed}")
    return (
        found
        + _starts("head", head, {"--head", "--autoscaling-config=~/ray_bootstrap_config.yaml"})
        + _starts("worker", worker, {f"--address=$RAY_HEAD_IP:{_port(head)}"})
    )


def _starts(who: str, commands: list[str], needed: set[str]) -> list[str]:
    start = " ".join(c for c in commands if "ray start" in c)
    words = set(start.split())
    needed = needed | {"--disable-usage-stats"} | ({"--dashboard-host=127.0.0.1"} if who == "head" else set())
    found = [f"{who}: ray start lacks {n}" for n in sorted(needed - words)]
    flags = {w.partition("=")[0] for w in words if w.startswith("--")}
    found += [f"{who}: ray start knows no {f}" for f in sorted(flags - ray_start_flags())]
    return found + ([] if "ulimit -n" in start else [f"{who}: the limit of open files is not raised"])


def _port(head: list[str]) -> str:
    given = re.search(r"--port=(\d+)", " ".join(head))
    return given[1] if given else "6379"


@cache
def ray_start_flags() -> frozenset[str]:
    """The options of `ray start`."""
    from ray.scripts.scripts import start

    return frozenset(flag for parameter in start.params for flag in [*parameter.opts, *parameter.secondary_opts])


@cache
def _parses(command: str) -> bool:
    return subprocess.run(["bash", "-n", "-c", command], capture_output=True, timeout=SECONDS).returncode == 0
