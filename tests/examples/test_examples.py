"""The examples run as written, in a folder of their own, and say what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import raychains as rc
from tests.processes import SECONDS

EXAMPLES = Path(rc.__file__).parents[1] / "examples"


def said(name: str, folder: Path) -> str:
    """What an example prints."""
    paths = [str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, timeout=SECONDS,
        env={**outside, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_transformer_on_a_table_gives_calibrated_predictions(tmp_path: Path) -> None:
    text = said("own_model.py", tmp_path)
    error = re.search(r"^error +([\d.]+)$", text, flags=re.M)
    assert error is not None and float(error[1]) < 0.06  # always saying the larger class has .37
    average, alone = map(
        float, re.search(r"NLL of the average ([\d.]+), of its first sample alone ([\d.]+)", text).groups()
    )  # type: ignore[union-attr]
    assert average < alone and average < 0.2
    (report,) = (tmp_path / "runs" / "runs").glob("cells-*/report.html")
    assert len(list(tmp_path.glob("runs/chains/*/samples/*"))) == int(
        re.search(r"^(\d+) samples;", text, flags=re.M)[1]
    )  # type: ignore[index]
    assert rc.load(str(report.parent)).table(full=True)["error"].iloc[0] == pytest.approx(float(error[1]), abs=1e-6)


@pytest.mark.long
def test_an_own_sampler_of_a_script_is_compared_with_a_built_in_one(tmp_path: Path) -> None:
    text = said("own_sampler.py", tmp_path)
    rows = re.findall(r"^ *(\S+.*, \d chains?) +([\d.]+) +([\d.]+) +([\d.]+)$", text, flags=re.M)
    assert [label for label, *_ in rows] == [
        "cSGLD, 2 chains", "cSGLD, 1 chain", "AdamSGLD, 2 chains", "AdamSGLD, 1 chain"
    ]  # fmt: skip
    assert all(float(error) < 0.1 for _, error, *_ in rows)  # each of ten digits is as frequent
    (run,) = (tmp_path / "runs" / "runs").iterdir()
    result = rc.load(str(run))  # which imports nothing, and reads everything
    specs = result.comparison.chains().values()
    assert {spec.sampler.kind for spec in specs} == {"sgld", "__main__:AdamSGLD"}
    assert {spec.sampler.source is None for spec in specs if spec.sampler.kind == "sgld"} == {True}
    assert all(spec.sampler.source for spec in specs if spec.sampler.kind != "sgld")
    assert result.table(full=True)["error"].tolist() == pytest.approx([float(error) for _, error, *_ in rows], abs=1e-5)


@pytest.mark.long
def test_the_posterior_of_adapters_has_samples_of_their_size(tmp_path: Path) -> None:
    text = said("lora.py", tmp_path)
    errors = re.search(r"^error without adapters ([\d.]+), of the posterior ([\d.]+)$", text, flags=re.M)
    assert errors is not None and float(errors[2]) < 0.4 < 0.8 < float(errors[1])
    sampled = re.search(r"^([\d,]+) of ([\d,]+) parameters are sampled$", text, flags=re.M)
    assert sampled is not None
    adapters, all_of_them = (int(n.replace(",", "")) for n in sampled.groups())
    samples = list(tmp_path.glob("runs/chains/*/samples/*"))
    assert len(samples) == 24
    assert all(4 * adapters < file.stat().st_size < 4 * adapters + 8000 < 4 * all_of_them for file in samples)


@pytest.mark.long
def test_a_language_models_adapters_have_a_posterior_better_than_its_samples(tmp_path: Path) -> None:
    text = said("gpt.py", tmp_path)
    told = re.search(
        r"of the base ([\d.]+), of one sample ([\d.]+), of the posterior ([\d.]+); .* error ([\d.]+) %", text
    )
    assert told is not None
    base, alone, posterior, calibration = map(float, told.groups())
    assert posterior < alone < base and calibration < 10
    sizes = re.search(r"([\d.]+) MB, which without a common base would be ([\d.]+) MB", text)
    adapters = re.search(r"^([\d,]+) of ([\d,]+) parameters are sampled; (\d+) samples", text, flags=re.M)
    assert sizes is not None and adapters is not None
    few, whole, samples = (int(n.replace(",", "")) for n in adapters.groups())
    assert float(sizes[1]) == pytest.approx(4e-6 * (whole - few + samples * few), abs=0.1)
    assert float(sizes[2]) > 5 * float(sizes[1])
    assert len(list(tmp_path.glob("runs/chains/*/samples/*"))) == samples


def test_both_loops_give_equal_samples(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert "plain loop: 20 samples" in text
    assert "Lightning Fabric: 20 samples, equal to the plain loop bit for bit" in text


def test_without_lightning_the_loop_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    runpy.run_path(str(EXAMPLES / "own_loop.py"), run_name="__main__")
    out = capsys.readouterr().out
    assert (
        "plain loop: 20 samples" in out
        and "Lightning Fabric is missing (lightning_fabric): pip install lightning-fabric" in out
    )


@pytest.mark.long
def test_a_transformers_checkpoints_have_their_learning_coefficients(tmp_path: Path) -> None:
    rows = re.findall(
        r"^\d +(step-\d+)( attention\.\*)? +(-?[\d.]+) +[\d.]+ +([\d.]+)", said("local_transformer.py", tmp_path), re.M
    )
    assert [row[0] for row in rows] == ["step-20", "step-20", "step-80", "step-80", "step-300", "step-300"]
    losses = [float(row[3]) for row in rows[::2]]
    assert losses[0] > losses[1] > losses[2], "training lowers the loss"
    assert float(rows[5][2]) > 0 and float(rows[5][2]) < float(rows[4][2]), (
        "of the attention alone it is less than of all"
    )
