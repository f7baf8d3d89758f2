"""The manifests and the image are what KubeRay and this package need."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.launcher import images, manifests
from tests.launcher.constraints import ROOT

DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
IGNORED = (ROOT / "deploy/Dockerfile.dockerignore").read_text()
CLUSTER, JOB, SERVICE = manifests.FILES


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # in Ray Serve
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
        r"claimName: ([\w-]+)", "".join((ROOT / "deploy/kuberay" / f).read_text() for f in manifests.FILES)
    )
    assert set(used) == {claim["metadata"]["name"]}


def test_the_image_is_built_of_what_is_here() -> None:
    assert images.problems(DOCKERFILE, IGNORED) == []
    tag = re.search(r"docker build .* -t (\S+)", DOCKERFILE)
    assert tag
    for name in manifests.FILES:
        assert set(re.findall(r"image: (\S+)", (ROOT / "deploy/kuberay" / name).read_text())) == {tag[1]}
