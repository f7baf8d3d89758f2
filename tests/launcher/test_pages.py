"""What the pages tell people to type exists, and their table of sizes is what the benchmark measures."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks import sizes
from raychains.cli import COMMANDS, parse
from tests.launcher import clusters, manifests, pages
from tests.launcher.constraints import ROOT
from tests.processes import SECONDS

COMMANDS_TOLD = list(dict.fromkeys(pages.typed(pages.page())))
OTHERS = sorted({task for task, _ in sizes.PAIRS} - {"digits"})
SIZE = re.compile(r"[\d.]+(?= MB| × 4 P)")
OURS = re.compile(r"(?:raychains (\w+)|python (?:/opt/raychains/)?jobs/(\w+)\.py)((?: [^\n\\]*)?)")


def _check(command: str) -> None:
    """A command of raychains, alone, as a job or at the end of another, must be one with such options."""
    for name, script, arguments in OURS.findall(command):
        assert not script or (ROOT / "jobs" / f"{script}.py").is_file()
        assert (name or script) in COMMANDS
        parse(name or script, shlex.split(arguments))


@pytest.mark.parametrize("command", COMMANDS_TOLD)
def test_a_command_of_the_pages_is_one(command: str) -> None:
    assert clusters._parses(command)
    _check(command)
    first, *words = shlex.split(command.removesuffix(" &"))
    if first == "ray":
        import click
        from ray.dashboard.modules.job.cli import job_cli_group
        from ray.scripts.scripts import cli

        group, words = (job_cli_group, words[1:]) if words[0] == "job" else (cli, words)
        known = group.commands[words[0]]
        assert isinstance(known, click.Command)
        ours = words.index("--") if "--" in words else len(words)
        options = {o for p in known.params for o in [*p.opts, *p.secondary_opts]}
        assert {w.partition("=")[0] for w in words[1:ours] if w.startswith("-")} <= options
    for path in re.findall(r"(?<![\w/])(?:deploy/)?[\w/]*\.(?:yaml|txt)\b|deploy/Dockerfile", command):
        assert (ROOT / path).is_file()


def test_the_batch_script_and_the_manifests_run_commands_that_are() -> None:
    script = pages.batch_script()
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=SECONDS).returncode == 0
    (command,) = re.findall(r"ray symmetric-run .*?\n\n?$", script.replace("\\\n", ""), flags=re.S)
    start, _, entry = command.partition(" -- ")
    flags = {w.partition("=")[0] for w in start.split() if w.startswith("--")}
    assert flags - {"--address", "--min-nodes"} <= clusters.ray_start_flags()
    assert "--address" in entry, "the command would start a Ray of its own"
    _check(entry)
    for name in manifests.FILES:
        comments = (ROOT / "deploy/kuberay" / name).read_text()
        for line in re.findall(r"^#   (.*jobs/.*)$", comments, flags=re.M):
            _check(line)
    _check(yaml.safe_load((ROOT / "deploy/kuberay/rayjob.yaml").read_text())["spec"]["entrypoint"])


def test_what_the_page_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", pages.page())
    assert links and [x for x in links if not (ROOT / "docs/how-to" / x).resolve().exists()] == []


@pytest.mark.parametrize("task", ["digits", *(pytest.param(t, marks=pytest.mark.long) for t in OTHERS)])
def test_the_sizes_are_measured(task: str) -> None:
    if task != "digits" and not os.environ.get("RAYCHAINS_DATA"):
        pytest.skip("RAYCHAINS_DATA is not set: MNIST and CIFAR-10 are needed")
    for sampler in (method for name, method in sizes.PAIRS if name == task):
        (told,) = [row for row in pages.page().splitlines() if row.startswith(f"| `{task}` | `{sampler}` |")]
        measured = sizes.line(task, sampler)
        assert SIZE.sub("", measured) == SIZE.sub("", told)
        found, expected = ([float(size) for size in SIZE.findall(row)] for row in (measured, told))
        assert len(expected) == 4 and found == pytest.approx(expected, rel=0.01), "a loss's digits are some bytes of it"


def test_every_size_is_on_the_page_and_the_example_follows_from_them() -> None:
    rows = {tuple(re.findall(r"`([\w-]+)`", line)) for line in pages.page().splitlines() if " × 4 P)" in line}
    assert rows == set(sizes.PAIRS)
    (row,) = [line for line in pages.page().splitlines() if "`cifar10-resnet18` | `csghmc`" in line]
    sample, checkpoint = (float(m) * 1e6 for m in re.findall(r"([\d.]+) MB", row))
    kept, gradients = (int(c.replace(",", "")) for c in row.split("|")[-3:-1])
    for said in (
        f"= {64 * gradients / 1e6:.0f} million",
        f"= {64 * kept * sample / 1e9:.0f} GB",
        f"= {64 * 3 * checkpoint / 1e9:.0f} GB",
        f"= {64 * checkpoint / 60e6:.0f} MB/s; at `--checkpoint-every 5min` {64 * checkpoint / 300e6:.0f} MB/s",
    ):
        assert said in pages.page(), said


@pytest.mark.long
def test_ray_up_goes_as_far_as_to_credentials(tmp_path: Path) -> None:
    """Ray accepts the file, and the cloud's credentials are missing."""
    assert "ray up cluster.yaml" in pages.section("`ray up cluster.yaml`")
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "RAY"))}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ray")), "up", "--yes", "cluster.yaml"],
        cwd=ROOT,
        env={**outside, "HOME": str(tmp_path), "AWS_EC2_METADATA_DISABLED": "true"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode != 0
    assert "NoCredentialsError: Unable to locate credentials" in done.stdout + done.stderr
