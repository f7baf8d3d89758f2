"""`make gpu` in its short form on the CPU: every sampler is checked, and what is wrong is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from raychains.chain.chain import Chain
from raychains.core.sample import tensors_sha256
from raychains.samplers import KINDS, AdamW
from raychains.samplers.noise import Noise
from raychains.store.codec import decode, encode
from tests.gpu.check import NETWORKS, main
from tests.gpu.runs import NAMES, SAMPLER, Runs
from tests.processes import SECONDS

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys
sys.modules |= dict.fromkeys(("ray", "pytest", "pyarrow", "pandas", "hypothesis"))  # importing any of them fails
from tests.gpu.check import main
sys.exit(main(sys.argv[1:]))
"""
NOISELESS = {"sgd", "sgdm", "sam", "adamw", "mclmc", "swag"}
"""Those whose checks draw no noise."""


@pytest.mark.long
def test_every_sampler_passes_and_neither_ray_nor_pytest_is_needed(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    command = [sys.executable, "-c", ALONE, "--short", "--device", "cpu", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["ok"] and result["environment"]["device"] == "cpu" and result["environment"]["torch"]
    for group in ("law", "resume"):
        rows = [row for row in result["checks"] if row["name"].startswith(f"{group}/")]
        assert {row["sampler"] for row in rows} == KINDS.keys()
        assert all(row["ok"] and abs(row["measured"] - row["expected"]) <= row["tolerance"] for row in rows)
    assert {row["check"] for row in result["checks"]} >= {f"cpu/{name}" for name in NETWORKS}
    assert not any(row["check"].startswith("run/") for row in result["checks"])
    assert "run/… is left out: ray and pyarrow cannot be imported" in done.stdout
    figures = {row["name"]: row for row in result["benchmarks"]}
    assert len(figures) == 4
    for network in ("mnist-mlp", "mnist-cnn"):
        epoch, step = (figures[f"benchmark/{network}/128/{what}"] for what in ("epoch/threads=1", "step"))
        times = [*epoch["epoch_seconds"], *epoch["plain_loop_epoch_seconds"], step["floor_seconds"]]
        assert len(times) == 3 and min(times) > 0
        assert {"SGHMC with noise", "torch.optim.SGD"} < step["step_seconds"].keys()


def failed(tmp_path: Path, *only: str) -> set[str]:
    """The kinds of the samplers that fail, of a run that must."""
    out = tmp_path / "gpu.json"
    assert main(["--short", "--out", str(out), "--only", *only]) == 1
    result: dict[str, Any] = json.loads(out.read_text())
    assert not result["ok"]
    return {row["sampler"] for row in result["checks"] if not row["ok"]}


@pytest.mark.parametrize(
    ("only", "samplers"),
    [
        (("law/sghmc/*float64", "law/entropy-sgld"), {"sghmc", "entropy-sgld"}),
        pytest.param(
            ("law/*float64", "law/entropy-*", "law/*sam*", "law/laplace"),
            KINDS.keys() - NOISELESS,
            marks=pytest.mark.long,
        ),
    ],
    ids=["two", "every"],
)
def test_noise_of_a_temperature_a_tenth_too_high_fails_every_sampler_that_has_any(
    only: tuple[str, ...], samplers: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like, add, factor = Noise.like, Noise.add, 1.1**0.5

    def hot_add(noise: Noise, tensors: list[Tensor], std: float) -> None:
        add(noise, tensors, factor * std)

    monkeypatch.setattr(Noise, "like", lambda noise, p: factor * like(noise, p))
    monkeypatch.setattr(Noise, "add", hot_add)
    assert failed(tmp_path, *only) == samplers


def test_a_state_that_loses_something_fails_the_resumed_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_dict = Chain.state_dict
    monkeypatch.setattr(Chain, "state_dict", lambda chain: {**state_dict(chain), "loss_count": 0})
    assert failed(tmp_path, "resume/sghmc-digits") == {"sghmc"}


@pytest.mark.parametrize("networks", [["digits"], pytest.param(list(NETWORKS), marks=pytest.mark.long)], ids=len)
def test_a_gradient_that_is_off_by_a_millionth_fails_the_comparison_with_the_cpu(
    networks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradient = Chain._gradient

    def off(chain: Chain, *given: Any) -> Tensor | None:
        loss = gradient(chain, *given)
        if chain.device.index == 0:
            next(iter(chain.sampled.values())).grad *= 1 + 1e-6
        return loss

    monkeypatch.setattr(Chain, "_gradient", off)
    out, only = tmp_path / "gpu.json", [f"cpu/{name}" for name in networks]
    assert main(["--short", "--device", "cpu:0", "--out", str(out), "--only", *only]) == 1
    assert names(out) == only
    assert not any(row["ok"] for row in json.loads(out.read_text())["checks"])


@pytest.mark.long
def test_runs_that_share_the_device_or_are_killed_pass_and_fail_where_a_sample_differs_or_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Runs("cpu", "cpu", tmp_path, True, NAMES)
    monkeypatch.setattr("tests.gpu.check.Runs", lambda *_: real)
    out, wrong = tmp_path / "gpu.json", tmp_path / "wrong.json"
    command = ["--short", "--only", "run/*", "--out"]
    assert main([*command, str(out)]) == 0
    assert sorted(set(names(out))) == sorted(NAMES)
    assert f"| run {SAMPLER} | 4 | 0 | equal |" in out.with_suffix(".md").read_text()

    first, second = tmp_path.glob("killed/chains/*")
    for chain in (first, second):
        (chain / "samples.parquet").unlink()  # the index, so that the files count
    for lost in first.glob("samples/000003-*"):
        lost.unlink()
    file = max(second.glob("samples/000003-*"))
    tensors, description = decode(file.read_bytes())
    changed = {name: tensor + 1e-3 for name, tensor in tensors.items()}
    file.write_bytes(encode(changed, description | {"sha256": tensors_sha256(changed)}))
    real.names = NAMES[1:]
    assert main([*command, str(wrong)]) == 1
    assert [row["measured"] for row in json.loads(wrong.read_text())["checks"]] == [2, 0]
    assert f"| run {SAMPLER} | 2 | 1 | – |" in wrong.with_suffix(".md").read_text()


def test_a_check_that_raises_is_a_failed_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Noise, "add", None)
    assert failed(tmp_path, "law/sghmc/*", "law/sam") == {"sghmc"}


def names(file: Path) -> list[str]:
    result = json.loads(file.read_text())
    return [row["check"] for group in ("checks", "benchmarks") for row in result[group]]


def test_the_same_command_goes_on_and_repeats_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpu.json"
    command = ["--short", "--out", str(out), "--only", "law/sam", "law/swag", "law/adamw"]
    assert main([*command, "--minutes", "0"]) == 3 and not out.exists()
    assert "3 checks are left: the same command goes on" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(AdamW, "apply", None)
        assert main([*command[:-3], "law/adamw", "law/swag"]) == 1
    assert sorted(names(out)) == ["law/adamw", "law/swag"]
    assert "- **failed**: law/adamw: TypeError" in out.with_suffix(".md").read_text()
    capsys.readouterr()
    assert main(command) == 0 and sorted(names(out)) == ["law/adamw", "law/sam", "law/swag"]
    assert "law/swag" not in capsys.readouterr().out  # it is not run again
    page = out.with_suffix(".md").read_text()
    assert "# Checks on cpu" in page and "3 checks, in the short form, 0 failed." in page
    assert "| law adamw | 1 | 0 | 0.00 |" in page
    assert main([*command[1:]]) == 2 and "is of another device, version or length" in capsys.readouterr().err


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path / "gpu.json"), "--only", "laws"]) == 2
