"""The files for `ray up` are what Ray, the clouds and this package need, and what breaks one is seen."""

from __future__ import annotations

import copy
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.launcher import clusters
from tests.launcher.constraints import ROOT

AWS, GCP, LOCAL = clusters.FILES


@pytest.mark.parametrize("name", clusters.FILES)
def test_a_cluster_file_is_valid(name: str) -> None:
    assert clusters.problems(clusters.read(name)) == []


def _put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value; None takes it out."""

    def change(config: dict[str, Any]) -> None:
        *folders, last = path.split(" > ")
        for key in folders:
            config = config[key]
        if value is None:
            del config[last]
        else:
            config[last] = value

    return change


def _edit(key: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """A change in the text of a list of commands."""

    def change(config: dict[str, Any]) -> None:
        assert any(old in c for c in config[key])
        config[key] = [c.replace(old, new) for c in config[key]]

    return change


NODE = "available_node_types > gpu_spot"
BROKEN = {
    "a field that Ray does not know": (AWS, _put("max_wrkers", 3), "Ray refuses it"),
    "no provider": (LOCAL, _put("provider > worker_ips", None), "Ray refuses it"),
    "half a GPU": (AWS, _put(f"{NODE} > resources > GPU", 0.5), "Ray refuses it"),
    "a head that is none of the types": (AWS, _put("head_node_type", "boss"), "Ray refuses it"),
    "no region": (AWS, _put("provider > region", None), "provider.region is missing"),
    "no instance type": (AWS, _put(f"{NODE} > node_config > InstanceType", None), "InstanceType is missing"),
    "no image": (AWS, _put(f"{NODE} > node_config > ImageId", None), "ImageId is missing"),
    "no rights": (AWS, _put(f"{NODE} > node_config > IamInstanceProfile", None), "IamInstanceProfile is missing"),
    "no project": (GCP, _put("provider > project_id", None), "provider.project_id is missing"),
    "no machine type": (GCP, _put(f"{NODE} > node_config > machineType", None), "machineType is missing"),
    "no disk": (GCP, _put(f"{NODE} > node_config > disks", []), "no image to boot"),
    "a head that runs chains": (AWS, _put("available_node_types > head > resources", {"CPU": 8}), "head gives CPU"),
    "a head of unknown size": (AWS, _put("available_node_types > head > resources", {}), "head gives CPU"),
    "a local head that runs chains": (LOCAL, _edit("head_start_ray_commands", "--num-cpus=0", ""), "head gives CPUs"),
    "workers without GPUs": (AWS, _put(f"{NODE} > resources", {"CPU": 48}), "resources.GPU is not written"),
    "more of a type than of all": (AWS, _put(f"{NODE} > max_workers", 17), "min_workers ≤ max_workers"),
    "machines that stay": (AWS, _put("idle_timeout_minutes", None), "idle_timeout_minutes is missing"),
    "spot alone": (AWS, _put("available_node_types > gpu_on_demand", None), "not both there"),
    "spot last": (AWS, _put(f"{NODE} > priority", 0), "not preferred"),
    "a path that is not there": (AWS, _put("file_mounts > ~/raychains/x", "./nowhere"), "nowhere does not exist"),
    "no token": (AWS, _put("file_mounts > ~/.ray/auth_token", None), "token does not reach"),
    "no licence": (AWS, _put("file_mounts > ~/raychains/LICENSE", None), "file_mounts lack LICENSE"),
    "an open quote": (AWS, _edit("setup_commands", "raychains.env ~/.bashrc", "'raychains.env ~/.bashrc"), "no shell"),
    "no constraints": (AWS, _edit("setup_commands", "-c ~/raychains/constraints.txt", ""), "pip install without -c"),
    "an open version": (AWS, _edit("head_setup_commands", "boto3", "awscli"), "leaves awscli's version open"),
    "another version": (AWS, _edit("head_setup_commands", "boto3", "boto3==1.0"), "not what constraints.txt says"),
    "an index": (AWS, _edit("setup_commands", "install -q", "install --index-url x -q"), "a place of its own"),
    "no package": (AWS, _edit("setup_commands", "constraints.txt ~/raychains", "constraints.txt ray"), "not installed"),
    "no store": (AWS, _edit("setup_commands", "RAYCHAINS_STORE=s3://", "STORE=s3://"), "lack a shared store"),
    "a store of each node": (LOCAL, _edit("setup_commands", "STORE=/shared", "STORE=runs"), "lack a shared store"),
    "no authentication": (AWS, _edit("setup_commands", "RAY_AUTH_MODE=token", ""), "lack token authentication"),
    "a token for everybody": (AWS, _edit("setup_commands", "chmod 600", "cat"), "only its owner reads"),
    "a public dashboard": (AWS, _edit("head_start_ray_commands", "127.0.0.1", "0.0.0.0"), "--dashboard-host=127.0.0.1"),
    "no autoscaler": (AWS, _edit("head_start_ray_commands", "--autoscaling-config", "--config"), "lacks --autoscaling"),
    "a misspelt option": (AWS, _edit("worker_start_ray_commands", "--object-manager-port", "--omport"), "no --omport"),
    "another port": (AWS, _edit("worker_start_ray_commands", ":6379", ":6380"), "lacks --address=$RAY_HEAD_IP:6379"),
    "usage statistics": (AWS, _edit("worker_start_ray_commands", "--disable-usage-stats", ""), "--disable-usage-stats"),
    "few files": (AWS, _edit("worker_start_ray_commands", "ulimit -n", "ulimit -c"), "open files"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_it_is_seen(what: str) -> None:
    name, change, expected = BROKEN[what]
    config = clusters.read(name)
    change(config)
    assert any(expected in p for p in clusters.problems(config)), clusters.problems(config)


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
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert f"RAYCHAINS_STORE=file://{tmp_path}\n" in done.stdout and "RAY_AUTH_MODE=token\n" in done.stdout
    assert re.search(rf"^PATH={tmp_path}/venv/bin:", done.stdout, flags=re.M)
    assert done.stdout.count(". ~/raychains.env") == 1

    wrong = script.replace(f"file://{tmp_path}", "nowhere://bucket")
    assert subprocess.run(["bash", "-c", wrong], env=environment, capture_output=True, timeout=120).returncode != 0


def test_the_commands_in_its_head_name_files_that_are_there() -> None:
    for name in clusters.FILES:
        comments = "".join(line for line in (ROOT / name).read_text().splitlines(True) if line.startswith("#"))
        for path in re.findall(r"\b(?:deploy|docs)/[\w./-]*\w", comments):
            assert (ROOT / path).exists(), f"{name} names {path}"
