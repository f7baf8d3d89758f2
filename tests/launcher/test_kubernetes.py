"""The manifests and the image are what KubeRay and this package need, and what breaks one is seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.launcher import images, manifests
from tests.launcher.constraints import RAY, ROOT

DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
IGNORED = (ROOT / "deploy/Dockerfile.dockerignore").read_text()
CLUSTER, JOB = manifests.FILES


@pytest.mark.parametrize("name", manifests.FILES)
def test_a_manifest_is_valid(name: str) -> None:
    assert manifests.problems(manifests.read(name)) == []


def test_both_describe_the_same_cluster() -> None:
    assert manifests.cluster(manifests.read(CLUSTER)) == manifests.cluster(manifests.read(JOB))


def test_the_claim_that_they_mount_is_one_that_many_pods_write() -> None:
    claim = yaml.safe_load((ROOT / "deploy/kuberay/store.yaml").read_text())
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert manifests.QUANTITY.fullmatch(claim["spec"]["resources"]["requests"]["storage"])
    used = re.findall(
        r"claimName: ([\w-]+)", "".join((ROOT / "deploy/kuberay" / f).read_text() for f in (CLUSTER, JOB))
    )
    assert set(used) == {claim["metadata"]["name"]}


def _at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value below the cluster's spec; None takes it out."""

    def change(manifest: dict[str, Any]) -> None:
        *folders, last = path.split(" > ")
        place: Any = manifest if (folders or [last])[0] in manifest else manifests.cluster(manifest)
        for key in folders:
            place = place[int(key)] if isinstance(place, list) else place[key]
        key = int(last) if isinstance(place, list) else last
        if value is None:
            del place[key]
        else:
            place[key] = value

    return change


HEAD = "headGroupSpec > template > spec"
GPU = "workerGroupSpecs > 0"
POD = f"{GPU} > template > spec"
BROKEN = {
    "an old API": (CLUSTER, _at("apiVersion", "ray.io/v1alpha1"), "apiVersion"),
    "another kind": (CLUSTER, _at("kind", "RayServe"), "none of KubeRay's"),
    "a name that is none": (CLUSTER, _at("metadata > name", "Ray_Chains"), "metadata.name"),
    "a misspelt field": (CLUSTER, _at("spec > enableInTreeAutoscaler", True), "spec has no field"),
    "a misspelt field of a pod": (CLUSTER, _at(f"{POD} > restartpolicy", "Never"), "has no field restartpolicy"),
    "another Ray": (CLUSTER, _at("rayVersion", "2.41.0"), f"rayVersion is not {RAY}"),
    "no authentication": (CLUSTER, _at("authOptions > mode", "disabled"), "token authentication is off"),
    "no autoscaler": (CLUSTER, _at("enableInTreeAutoscaling", None), "the autoscaler is off"),
    "autoscaler v1": (CLUSTER, _at(f"{HEAD} > containers > 0 > env > 0 > value", "0"), "v2 is not asked for"),
    "v2 twice": (CLUSTER, _at("autoscalerOptions > version", "v2"), "v2 is asked for twice"),
    "a head that runs chains": (CLUSTER, _at("headGroupSpec > rayStartParams > num-cpus", "4"), "head gives CPUs"),
    "a number for a string": (CLUSTER, _at(f"{GPU} > rayStartParams > num-gpus", 4), "is no string"),
    "an option that Ray lacks": (CLUSTER, _at(f"{GPU} > rayStartParams > gpus", "4"), "knows no --gpus"),
    "pods that restart": (CLUSTER, _at(f"{POD} > restartPolicy", "Always"), "restartPolicy is not Never"),
    "pods that stay": (CLUSTER, _at(f"{GPU} > minReplicas", 1), "minReplicas ≤ replicas"),
    "fewer than none": (CLUSTER, _at(f"{GPU} > maxReplicas", -1), "minReplicas ≤ replicas"),
    "no GPU": (CLUSTER, _at(f"{POD} > containers > 0 > resources > limits > nvidia.com/gpu", None), "no GPU"),
    "no limits": (CLUSTER, _at(f"{POD} > containers > 0 > resources", {}), "requests are not the limits"),
    "16 GigaBytes": (
        CLUSTER,
        _at(f"{HEAD} > containers > 0 > resources > limits > memory", "16GB"),
        "'16GB' is no quantity",
    ),
    "no /dev/shm": (CLUSTER, _at(f"{POD} > containers > 0 > volumeMounts > 1", None), "/dev/shm is no memory"),
    "a /dev/shm on the disk": (CLUSTER, _at(f"{POD} > volumes > 1 > emptyDir", {}), "/dev/shm is no memory"),
    "a mount of nothing": (CLUSTER, _at(f"{HEAD} > volumes > 0 > name", "stores"), "store is mounted, but no volume"),
    "a volume for nothing": (CLUSTER, _at(f"{HEAD} > containers > 0 > volumeMounts > 0", None), "store is not mounted"),
    "a store of each pod": (CLUSTER, _at(f"{POD} > containers > 0 > env > 0 > value", "/tmp/runs"), "is not shared"),
    "two stores": (CLUSTER, _at(f"{POD} > volumes > 0 > persistentVolumeClaim > claimName", "b"), "different stores"),
    "ports without names": (CLUSTER, _at(f"{HEAD} > containers > 0 > ports", []), "ports are not named"),
    "the newest image": (CLUSTER, _at(f"{POD} > containers > 0 > image", "raychains:latest"), "does not name Ray"),
    "root": (CLUSTER, _at(f"{HEAD} > securityContext", {}), "runs as root"),
    "no workers": (CLUSTER, _at("workerGroupSpecs", []), "there are no workers"),
    "a job that leaves its cluster": (JOB, _at("spec > shutdownAfterJobFinishes", False), "the cluster stays"),
    "a script that is not there": (JOB, _at("spec > entrypoint", "python /opt/raychains/jobs/x.py"), "runs no script"),
    "a job of two commands": (
        JOB,
        _at("spec > entrypoint", "ls && python /opt/raychains/jobs/run.py"),
        "more than one",
    ),
    "no folder for data": (CLUSTER, _at(f"{HEAD} > initContainers", None), "nobody makes the folder"),
    "a job that begins anew": (JOB, _at("spec > entrypoint", "python /opt/raychains/jobs/run.py"), "lacks --resume"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_a_manifest_is_seen(what: str) -> None:
    name, change, expected = BROKEN[what]
    manifest = manifests.read(name)
    change(manifest)
    assert any(expected in p for p in manifests.problems(manifest)), manifests.problems(manifest)


def test_the_image_is_built_of_what_is_here() -> None:
    assert images.problems(DOCKERFILE, IGNORED) == []
    tag = re.search(r"docker build .* -t (\S+)", DOCKERFILE)
    assert tag
    for name in manifests.FILES:
        assert set(re.findall(r"image: (\S+)", (ROOT / "deploy/kuberay" / name).read_text())) == {tag[1]}


BROKEN_IMAGES = {
    "the newest base": ("python:3.11-slim", "python:latest", "without a version"),
    "a base of no version": ("python:3.11-slim", "python", "without a version"),
    "a file that is not there": ("COPY jobs ./jobs", "COPY jobs scripts ./jobs", "COPY of scripts"),
    "no scripts": ("COPY jobs ./jobs\n", "", "jobs is not copied"),
    "no constraints": (" -c constraints.txt", "", "pip install without -c"),
    "an index": ("-c constraints.txt", "-c constraints.txt --index-url x", "a place of its own"),
    "an open version": (" boto3 ", " awscli ", "leaves awscli's version open"),
    "no package": (" . boto3", " ray", "raychains itself is not installed"),
    "a package that comes late": ("COPY raychains ./raychains\n", "", "before it is copied"),
    "another Ray": ("grep -F 2.60.0", "grep -F 2.59.0", "is not Ray"),
    "root": ("USER 1000\n", "", "runs as root"),
}


@pytest.mark.parametrize("what", BROKEN_IMAGES)
def test_what_breaks_the_image_is_seen(what: str) -> None:
    old, new, expected = BROKEN_IMAGES[what]
    assert old in DOCKERFILE
    found = images.problems(DOCKERFILE.replace(old, new), IGNORED)
    assert any(expected in p for p in found), found


def test_a_context_without_the_package_is_seen() -> None:
    assert ".dockerignore keeps raychains out" in images.problems(DOCKERFILE, IGNORED.replace("!raychains\n", ""))
