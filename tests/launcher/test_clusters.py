"""The files for `ray up` are what Ray, the clouds and this package need."""

from __future__ import annotations

import copy
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launcher import clusters
from tests.launcher.constraints import ROOT
from tests.processes import SECONDS

pytestmark = pytest.mark.long

AWS, GCP, LOCAL = clusters.FILES


@pytest.mark.parametrize("name", clusters.FILES)
def test_a_cluster_file_is_valid(name: str) -> None:
    assert clusters.problems(clusters.read(name)) == []


def test_aws_knows_its_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own bootstrap and launch against a simulated EC2: what is written about machines is what they have."""
    monkeypatch.setenv("HOME", str(tmp_path))  # an SSH key is written there
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "nobody's")
    import boto3
    from moto import mock_aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
    from ray.autoscaler._private.util import prepare_config

    config = prepare_config(clusters.read(AWS))
    written = {name: node["resources"] for name, node in config["available_node_types"].items()}
    bare = copy.deepcopy(config)
    for node in bare["available_node_types"].values():
        node["resources"] = {}
    with mock_aws():
        iam = boto3.client("iam", region_name="us-west-2")
        for role in ("raychains-head", "raychains-worker"):
            iam.create_instance_profile(InstanceProfileName=role)
        found = AWSNodeProvider.fillout_available_node_types_resources(bare)["available_node_types"]
        ready = AWSNodeProvider.bootstrap_config(config)
        provider = AWSNodeProvider(ready["provider"], ready["cluster_name"])
        for name, node in ready["available_node_types"].items():
            tags = {"ray-node-type": "worker", "ray-user-node-type": name, "ray-node-name": name}
            (made,) = provider.create_node(copy.deepcopy(node["node_config"]), tags, 1).values()
            assert made.instance_type == node["node_config"]["InstanceType"]
            assert made.iam_instance_profile["Arn"].endswith(node["node_config"]["IamInstanceProfile"]["Name"])
    for name in ("gpu_spot", "gpu_on_demand"):
        assert {k: v for k, v in found[name]["resources"].items() if k != "memory"} == written[name]
    assert found["head"]["resources"]["CPU"] > 0 == written["head"]["CPU"]


@pytest.mark.parametrize("name", [AWS, GCP])
def test_the_autoscaler_starts_machines_for_waiting_chains_spot_first(name: str) -> None:
    """By Ray's own scheduler: as many as chains need, on demand where spot cannot be had, never more than allowed."""
    config = clusters.read(name)
    assert _launched(config, chains=1) == {"gpu_spot": 1}
    assert _launched(config, chains=64) == _launched(config, chains=200) == {"gpu_spot": 16}
    assert _launched(config, chains=64, recoverable_resource_availabilities={"gpu_spot": 0.0})["gpu_on_demand"] == 4
    assert _launched(config, chains=1, recoverable_resource_availabilities={"gpu_spot": 0.0}) == {"gpu_on_demand": 1}


def _launched(config: dict[str, Any], chains: int, **more: Any) -> dict[str, int]:
    from ray.autoscaler._private.util import prepare_config
    from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    known = AutoscalingConfig(prepare_config(config), skip_content_hash=True)
    waiting = ResourceRequestUtil.group_by_count([ResourceRequestUtil.make({"CPU": 1, "GPU": 1})] * chains)
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=known.get_node_type_configs(),
        max_num_nodes=known.get_max_num_nodes() - 1,  # the head is one of them
        resource_requests=waiting,
        **more,
    )
    return {launch.instance_type: launch.count for launch in ResourceDemandScheduler().schedule(request).to_launch}


def test_nodes_find_their_environment_and_the_store(tmp_path: Path) -> None:
    """The last two set-up commands, run as `ray up` runs them, and again as a second `ray up` does."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    python = tmp_path / "venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    remember, look = clusters.read(AWS)["setup_commands"][-2:]
    remember = remember.replace("s3://CHANGE-ME/raychains", f"file://{tmp_path}")
    source = "true; source ~/.bashrc; "
    script = f"touch ~/.bashrc; {source}{remember} && ({remember}) && {source}{look} && env && cat ~/.bashrc"
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    assert f"RAYCHAINS_STORE=file://{tmp_path}\n" in done.stdout and "RAY_AUTH_MODE=token\n" in done.stdout
    assert re.search(rf"^PATH={tmp_path}/venv/bin:", done.stdout, flags=re.M)
    assert done.stdout.count(". ~/raychains.env") == 1

    wrong = script.replace(f"file://{tmp_path}", "nowhere://bucket")
    assert subprocess.run(["bash", "-c", wrong], env=environment, capture_output=True, timeout=SECONDS).returncode != 0


def test_the_commands_in_its_head_name_files_that_are_there() -> None:
    for name in clusters.FILES:
        comments = "".join(line for line in (ROOT / name).read_text().splitlines(True) if line.startswith("#"))
        for path in re.findall(r"\b(?:deploy|docs)/[\w./-]*\w", comments):
            assert (ROOT / path).exists(), f"{name} names {path}"
