"""The manifests and the image are what KubeRay and this package need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.launcher import crds, images, manifests
from tests.launcher.constraints import ROOT
from tests.processes import SECONDS

pytestmark = pytest.mark.long

DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
IGNORED = (ROOT / "deploy/Dockerfile.dockerignore").read_text()
CLUSTER, JOB, SERVICE = manifests.FILES


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # in Ray Serve
@pytest.mark.parametrize("name", manifests.FILES)
def test_a_manifest_is_valid(name: str) -> None:
    assert manifests.problems(manifests.read(name)) == []


@pytest.mark.parametrize("version", crds.VERSIONS)
def test_the_operator_takes_every_field(version: str) -> None:
    """The oldest release that the pages name, and a current one: what a definition lacks is dropped in silence."""
    for name in manifests.FILES:
        assert crds.problems(manifests.read(name), version) == []
    spec = (wrong := manifests.read(JOB))["spec"]
    spec["shutdownAfterJobFinished"] = spec.pop("shutdownAfterJobFinishes")
    head = spec["rayClusterSpec"]["headGroupSpec"]
    head["rayStartParams"]["num-cpus"] = 0
    head["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "16 GB"
    spec["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["restartPolicies"] = "Never"
    found = crds.problems(wrong, version)
    assert len(found) == 4 and all(
        any(said in line for line in found)
        for said in (
            "'shutdownAfterJobFinished' was unexpected",
            "num-cpus: 0 is not",
            "'16 GB' does not match",
            "'restartPolicies'",
        )
    ), found


def test_the_pages_name_the_oldest_release() -> None:
    oldest = crds.VERSIONS[0].removeprefix("kuberay-")
    for text in (ROOT / "docs/how-to/cluster.md", ROOT / "deploy/kuberay/raycluster.yaml"):
        assert f"KubeRay operator {oldest} or newer" in text.read_text()


def test_both_describe_the_same_cluster() -> None:
    assert manifests.cluster(manifests.read(CLUSTER)) == manifests.cluster(manifests.read(JOB))


def test_the_claim_that_they_mount_is_one_that_many_pods_write() -> None:
    claim = yaml.safe_load((ROOT / "deploy/kuberay/store.yaml").read_text())
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert re.search(crds.quantity(), claim["spec"]["resources"]["requests"]["storage"])
    used = re.findall(
        r"claimName: ([\w-]+)", "".join((ROOT / "deploy/kuberay" / f).read_text() for f in manifests.FILES)
    )
    assert set(used) == {claim["metadata"]["name"]}


def test_the_dockerfile_is_what_a_linter_wants() -> None:
    """An engine is not needed for it; what the lines that it may ignore say is in the file."""
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, ROOT / "deploy/Dockerfile"], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_is_built_of_what_is_here() -> None:
    assert images.problems(DOCKERFILE, IGNORED) == []
    tag = re.search(r"docker build .* -t (\S+)", DOCKERFILE)
    assert tag
    for name in manifests.FILES:
        assert set(re.findall(r"image: (\S+)", (ROOT / "deploy/kuberay" / name).read_text())) == {tag[1]}
