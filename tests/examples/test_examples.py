"""The examples run as written, the language model with fewer steps, and say what they promise."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import raychains as rc
from raychains.cli import main
from tests.pool import pooled, unpaged
from tests.processes import SECONDS

EXAMPLES = Path(rc.__file__).parents[1] / "examples"
SIZES = "CONTEXT, STEPS, TRAIN, TEST = 32, 1_200, 5_000, 2_000\n"
FEWER = "CONTEXT, STEPS, TRAIN, TEST = 16, 400, 1_500, 2_000\n"
"""Of the language model, whose example takes two minutes."""

Run = Callable[..., str]


def said(name: str, folder: Path) -> str:
    """What an example prints as a program of its own, with a Ray of its own."""
    paths = [str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    outside = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=folder, capture_output=True, text=True, timeout=SECONDS,
        env={**outside, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of all examples that run in this process, whose store they share, and with it their actors."""
    with pooled():
        yield tmp_path_factory.mktemp("examples")


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a script as the main module of this process and returns what it prints."""

    def run_main(script: Path) -> str:
        monkeypatch.setattr(sys, "argv", [str(script)])
        monkeypatch.setattr(sys, "path", [str(script.parent), *sys.path])
        monkeypatch.chdir(folder)
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return run_main


def samples_in(folder: Path, run: str) -> list[Path]:
    """The files of the samples of a run, by its name or the beginning of it."""
    (path,) = (folder / "runs" / "runs").glob(run)
    digests = rc.load(str(path)).comparison.chains()
    return [file for digest in digests for file in (folder / "runs" / "chains" / digest / "samples").iterdir()]


@pytest.mark.long
def test_a_transformer_on_a_table_gives_calibrated_predictions(run: Run, folder: Path) -> None:
    text = run(EXAMPLES / "own_model.py")
    error = re.search(r"^error +([\d.]+)$", text, flags=re.M)
    assert error is not None and float(error[1]) < 0.06  # always saying the larger class has .37
    average, alone = map(
        float, re.search(r"NLL of the average ([\d.]+), of its first sample alone ([\d.]+)", text).groups()
    )  # type: ignore[union-attr]
    assert average < alone and average < 0.2
    (report,) = (folder / "runs" / "runs").glob("cells-*/report.html")
    told = re.search(r"^(\d+) samples;", text, flags=re.M)
    assert told is not None and len(samples_in(folder, "cells-*")) == int(told[1])
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
def test_the_posterior_of_adapters_has_samples_of_their_size(run: Run, folder: Path) -> None:
    with unpaged():
        text = run(EXAMPLES / "lora.py")
    errors = re.search(r"^error without adapters ([\d.]+), of the posterior ([\d.]+)$", text, flags=re.M)
    assert errors is not None and float(errors[2]) < 0.4 < 0.8 < float(errors[1])
    sampled = re.search(r"^([\d,]+) of ([\d,]+) parameters are sampled$", text, flags=re.M)
    assert sampled is not None
    adapters, all_of_them = (int(n.replace(",", "")) for n in sampled.groups())
    samples = samples_in(folder, "digits-on-their-side-*")
    assert len(samples) == 24
    assert all(4 * adapters < file.stat().st_size < 4 * adapters + 8000 < 4 * all_of_them for file in samples)


@pytest.mark.long
def test_a_language_models_adapters_have_a_posterior_better_than_its_samples(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    """With fewer steps and windows than the example has."""
    code = (EXAMPLES / "gpt.py").read_text(encoding="utf-8")
    assert code.count(SIZES) == 1
    (tmp_path / "gpt.py").write_text(code.replace(SIZES, FEWER), encoding="utf-8")
    with unpaged():
        text = run(tmp_path / "gpt.py")
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
    assert len(samples_in(folder, "code-*")) == samples


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
def test_a_transformers_checkpoints_have_their_learning_coefficients(run: Run) -> None:
    with unpaged():
        text = run(EXAMPLES / "local_transformer.py")
    rows = re.findall(r"^\d +(step-\d+)( attention\.\*)? +(-?[\d.]+) +[\d.]+ +([\d.]+)", text, re.M)
    assert [row[0] for row in rows] == ["step-20", "step-20", "step-80", "step-80", "step-300", "step-300"]
    losses = [float(row[3]) for row in rows[::2]]
    assert losses[0] > losses[1] > losses[2], "training lowers the loss"
    assert float(rows[5][2]) > 0 and float(rows[5][2]) < float(rows[4][2]), (
        "of the attention alone it is less than of all"
    )


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: the tables are needed")
def test_a_fit_of_several_labels_and_of_counts_predicts_both(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLES / "labels_and_counts.py"))["main"]
    tables = Path(os.environ["RAYCHAINS_DATA"]) / "practice"
    labels = main("labels", str(tables / "yeast.csv.gz"), "300", str(tmp_path))
    beside = labels.store.table("reference").to_pandas().set_index(["reference", "metric"])
    assert (
        labels.results()["label_error"][0] < 0.22
    )  # always saying the more frequent value of each label has .30 … .23
    assert beside.loc[("ensemble", "nll"), "high"] < 0, "on these labels a posterior predicts better"
    counts = main("counts", str(tables / "randhie.csv.gz"), "300", str(tmp_path))
    rows = counts.store.table("rows").to_pandas()
    assert (rows["std"] ** 2 > rows["mean"]).all() and rows["mean"].mean() == pytest.approx(
        rows["target"].mean(), rel=0.2
    )


@pytest.mark.long
def test_a_fit_of_labels_per_pixel_is_better_than_an_ensemble_and_draws_where_it_is_unsure(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLES / "pixels.py"))["main"]
    result = main("2000", str(tmp_path), str(tmp_path / "pixels.png"))
    beside = result.store.table("reference").to_pandas().set_index(["reference", "metric"])
    assert beside.loc[("network", "nll"), "high"] < 0 and beside.loc[("ensemble", "nll"), "high"] < 0
    assert result.results()["label_error"][0] < 0.25  # always saying background is wrong on a third of the pixels
    assert (tmp_path / "pixels.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: the utterances are needed")
@pytest.mark.parametrize(("kind", "worst"), [("lstm", 0.35), ("attention", 0.25)])
def test_utterances_of_unequal_length_and_a_speaker_that_was_not_heard(kind: str, worst: float, tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLES / "utterances.py"))["main"]
    files = [
        str(Path(os.environ["RAYCHAINS_DATA"]) / f"practice/JapaneseVowels_{part}.ts.gz") for part in ("TRAIN", "TEST")
    ]
    result, area = main(kind, *files, "300", str(tmp_path))
    assert result.results()["nll"][0] < worst  # guessing has 2.08
    assert area > 0.75


@pytest.mark.long
def test_a_hugging_face_model_is_sampled_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    with unpaged():
        line = "run --task sentences:make_task --epochs 20 --chains 2 --store"
        assert main([*line.split(), str(folder / "bert"), "--name", "bert"]) == 0
    result = rc.load(str(folder / "bert/runs/bert"), trust=True)
    assert result.table(full=True)["error"].iloc[0] < 0.25  # always saying one label has about .5
    module = sys.modules["sentences"]
    sentences = [module.sentence(torch.Generator().manual_seed(i)) for i in range(8)]
    p = result.predict(module.collate(sentences))
    alone = np.concatenate([result.predict(module.collate([one])) for one in sentences])  # without padding
    np.testing.assert_allclose(p, alone, atol=1e-5)


@pytest.mark.long
@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: the tables are needed")
def test_a_fit_of_survival_times_predicts_who_lives_longer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(EXAMPLES / "survival.py"))["main"]
    result = main(str(Path(os.environ["RAYCHAINS_DATA"]) / "practice" / "flchain.arff"), "300", str(tmp_path))
    text = capsys.readouterr().out
    curves = [
        list(map(float, re.findall(r"[\d.]+", line.partition(";")[0])))
        for line in text.splitlines()
        if line.startswith("alive")
    ]
    assert len(curves) == 3 and all(len(c) == 12 and c == sorted(c, reverse=True) for c in curves)
    told = re.search(r"^C-index ([\d.]+); Brier score at 5 years ([\d.]+), of (\d+) known$", text, flags=re.M)
    assert told is not None and float(told[1]) > 0.75  # .5 of guesses
    assert float(told[2]) < 0.102  # p(1 − p) of the share that dies, .12
    beside = result.store.table("reference").to_pandas().set_index(["reference", "metric"])
    assert beside.loc[("ensemble", "nll"), "difference"] < 0.02
