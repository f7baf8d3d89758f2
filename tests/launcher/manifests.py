"""What KubeRay's manifests must be beyond what its definitions say (`crds`): what its operator, Ray and chains need of
them."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from raychains.api.serve import CLUSTER_OPTIONS
from raychains.core.config import Serve
from raychains.core.options import make, options_of
from tests.launcher.constraints import RAY, ROOT

FILES = ("raycluster.yaml", "rayjob.yaml", "rayservice.yaml")
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
CLUSTERS = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""The field that holds a kind's cluster."""


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "deploy/kuberay" / name).read_text())


def cluster(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return spec[CLUSTERS[manifest["kind"]]] if manifest["kind"] in CLUSTERS else spec


def problems(manifest: dict[str, Any]) -> list[str]:
    """Everything that is wrong with it, in words; nothing for a good one."""
    kind, spec = manifest["kind"], manifest["spec"]
    found = [] if manifest.get("apiVersion") == "ray.io/v1" else ["apiVersion is not ray.io/v1"]
    if not _named(manifest.get("metadata", {}).get("name")):
        found.append("metadata.name is none")
    if kind in CLUSTERS:
        found += _job(spec) if kind == "RayJob" else _service(spec)
    return found + _cluster(cluster(manifest))


def _job(spec: dict[str, Any]) -> list[str]:
    found = [] if spec.get("shutdownAfterJobFinishes") is True else ["the cluster stays after the job"]
    words = shlex.split(spec.get("entrypoint", ""))
    scripts = [w for w in words if w.startswith("/opt/raychains/")]
    if not scripts or not (ROOT / Path(scripts[0]).relative_to("/opt/raychains")).is_file():
        found.append("entrypoint runs no script of this checkout")
    if set(words) & {"&&", "||", ";", "|"}:
        found.append("entrypoint is more than one command: the submitter runs the rest itself")
    return found + [f"entrypoint lacks {w}" for w in ("--resume", "--name") if w not in words]


def _service(spec: dict[str, Any]) -> list[str]:
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(yaml.safe_load(spec["serveConfigV2"]))
    found, port = [], config.http_options.port
    for one in config.applications:
        module, _, name = one.import_path.partition(":")
        if not callable(getattr(importlib.import_module(module), name, None)):
            found.append(f"{one.import_path} builds no application")
        known = options_of(Serve).keys() - set(CLUSTER_OPTIONS)
        found += [f"the application has no argument {k}" for k in one.args if k not in known]
        make(Serve, one.args)
    groups = [spec["rayClusterConfig"]["headGroupSpec"], *spec["rayClusterConfig"]["workerGroupSpecs"]]
    for group in groups:
        ports = {p["name"]: p["containerPort"] for p in _container(group).get("ports", [])}
        if ports.get("serve") != port:
            found.append(f"{_container(group).get('name')}: no port named serve, {port}")
    return found


def _cluster(spec: dict[str, Any]) -> list[str]:
    found = [] if spec.get("rayVersion") == RAY else [f"rayVersion is not {RAY}, the one of constraints.txt"]
    if spec.get("authOptions", {}).get("mode") != "token":
        found.append("token authentication is off")
    if spec.get("enableInTreeAutoscaling") is not True:
        found.append("the autoscaler is off")
    head, workers = spec.get("headGroupSpec", {}), spec.get("workerGroupSpecs", [])
    if head.get("rayStartParams", {}).get("num-cpus") != "0":
        found.append("the head gives CPUs to chains")
    environment = _environment(head)
    by_variable = environment.get("RAY_enable_autoscaler_v2") == "1"
    by_field = spec.get("autoscalerOptions", {}).get("version") == "v2"
    if by_variable == by_field:
        found.append("autoscaler v2 is asked for twice" if by_field else "autoscaler v2 is not asked for")
    if {"gcs-server", "dashboard", "client"} - {p.get("name") for p in _container(head).get("ports", [])}:
        found.append("the head's ports are not named")
    if not workers:
        found.append("there are no workers")
    for worker in workers:
        found += _worker(worker)
    for group in [head, *workers]:
        found += _group(group)
    data, first = environment.get("RAYCHAINS_DATA"), head.get("template", {}).get("spec", {}).get("initContainers", [])
    if data and not any(c.get("command") == ["mkdir", "-p", data] for c in first):
        found.append("nobody makes the folder of RAYCHAINS_DATA")
    stores = {(_environment(g).get("RAYCHAINS_STORE"), _claim(g)) for g in [head, *workers]}
    return found + ([] if len(stores) == 1 else ["head and workers have different stores"])


def _worker(group: dict[str, Any]) -> list[str]:
    name = group.get("groupName", "?")
    found = [] if _named(name) else ["a group's name is none"]
    low, now, high = (group.get(k, -1) for k in ("minReplicas", "replicas", "maxReplicas"))
    if not 0 <= low <= now <= high:
        found.append(f"{name}: minReplicas ≤ replicas ≤ maxReplicas does not hold")
    if low:
        found.append(f"{name}: pods stay when nothing runs")
    if not _container(group).get("resources", {}).get("limits", {}).get("nvidia.com/gpu"):
        found.append(f"{name}: no GPU")
    return found


def _group(group: dict[str, Any]) -> list[str]:
    pod, container = group.get("template", {}).get("spec", {}), _container(group)
    name = container.get("name", "?")
    found = [] if _named(name) else ["a container's name is none"]
    known = {f.removeprefix("--") for f in _flags()}
    found += [f"ray start knows no --{k}" for k in group["rayStartParams"] if k not in known]
    if pod.get("restartPolicy") != "Never":
        found.append(f"{name}: restartPolicy is not Never")
    if not pod.get("securityContext", {}).get("runAsUser"):
        found.append(f"{name}: runs as root")
    image = container.get("image", "")
    if not re.fullmatch(rf"\S+:\S*{re.escape(RAY)}\S*", image):
        found.append(f"{name}: the image's tag does not name Ray {RAY}: {image!r}")
    resources = container.get("resources", {})
    if not resources.get("limits") or resources.get("requests") != resources.get("limits"):
        found.append(f"{name}: requests are not the limits")
    volumes = {v["name"]: v for v in pod.get("volumes", [])}
    mounts = {m["mountPath"]: m["name"] for m in container.get("volumeMounts", [])}
    found += [f"{name}: {v} is mounted, but no volume" for v in mounts.values() if v not in volumes]
    found += [f"{name}: {v} is not mounted" for v in volumes if v not in mounts.values()]
    if volumes.get(mounts.get("/dev/shm", ""), {}).get("emptyDir", {}).get("medium") != "Memory":
        found.append(f"{name}: /dev/shm is no memory of its own")
    store = _environment(group).get("RAYCHAINS_STORE", "")
    if not (re.match(r"(s3|gs)://.", store) or any(store.startswith(f"{m}/") for m in mounts)):
        found.append(f"{name}: the store {store!r} is not shared")
    return found + [f"{name}: env has no value for {k}" for k, v in _environment(group).items() if v is None]


def _flags() -> frozenset[str]:
    from tests.launcher.clusters import ray_start_flags

    return ray_start_flags()


def _container(group: dict[str, Any]) -> dict[str, Any]:
    return next(iter(group.get("template", {}).get("spec", {}).get("containers", [])), {})


def _environment(group: dict[str, Any]) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in _container(group).get("env", [])}


def _claim(group: dict[str, Any]) -> str | None:
    volumes = group.get("template", {}).get("spec", {}).get("volumes", [])
    return next((v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v), None)


def _named(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= 47 and NAME.fullmatch(name) is not None
