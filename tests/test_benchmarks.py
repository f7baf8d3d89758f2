"""The benchmarks of chains and of scale run as their README says and print what it promises; figures are nobody's
here."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from raychains.inference import hmc_reference
from tests.processes import ROOT, SECONDS

pytestmark = pytest.mark.long

Said = Callable[..., str]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a benchmark, as short as it can be, as the main module of this process and returns what it prints."""

    def run(name: str, *more: str) -> str:
        file = str(ROOT / "benchmarks" / name)
        monkeypatch.setattr(sys, "argv", [file, "--smoke", *more])
        monkeypatch.setattr(sys, "path", sys.path.copy())
        runpy.run_path(file, run_name="__main__")
        return capsys.readouterr().out

    return run


def printed_by(name: str) -> str:
    """What a benchmark prints that changes how its own process takes memory."""
    command = [sys.executable, f"benchmarks/{name}", "--smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: MNIST is needed")
def test_the_chain_benchmark_measures_epochs_steps_profile_and_floor(said: Said) -> None:
    printed = said("chain.py")
    parts = printed.split("\n\n")
    assert parts[0].startswith("machine: ") and len(parts) == 3
    for part, network in zip(parts[1:], ("MLP 784-400-400-10, MNIST", "LeNet, MNIST"), strict=True):
        assert part.startswith(f"{network}, batch 128, 300 images an epoch, 1 thread")
        assert len(re.findall(r"\d\.\d\d × \(by minima", part)) == 3, "epochs, and steps with and without noise"
        assert re.search(r"floor of a step: \d+ MFLOP .* is \d+\.\d+ × that", part)
        shares = re.findall(r"^    .{60} +(\d+\.\d)%$", part, re.MULTILINE)
        assert len(shares) >= 5 and sorted(map(float, shares), reverse=True) == [float(s) for s in shares]
        assert part.count("the sampler's noise") == 1


def test_the_benchmark_of_freed_memory_tells_seconds_and_their_ratio() -> None:
    printed = printed_by("freed_memory.py")
    kept, returned = (float(s) for s in re.findall(r"^plain, freed memory .*: (\d\.\d+) s a gradient$", printed, re.M))
    assert returned > 0 < kept and re.search(r"^plain: kept over not kept \d+\.\d\d × ", printed, re.M)


def test_the_pack_benchmark_sets_packs_against_chains_by_themselves() -> None:
    printed = printed_by("packs.py")
    _, *cases = printed.split("\n\n")
    assert [case.split("\n")[0] for case in cases] == ["digits", "regression", "mile", "mixture25-10", "banana-10"]
    for case in cases:
        assert re.search(r"by itself +\d+\.\d+ µs", case)
        rows = re.findall(r"2 in a pack +(compiled)? +\d+\.\d+ µs .*, \d+\.\d\d × as fast$", case, re.MULTILINE)
        name, density, _ = case.partition("-")
        assert rows == [""] * (name != "banana") + ["compiled"] * bool(density)


@pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: the airfoil table is needed"
)
def test_the_airfoil_benchmark_tells_seconds_and_metrics_of_our_fit(said: Said) -> None:
    printed = said("airfoil.py")
    (row,) = re.findall(r"^\| raychains \| 1 \| (\d\.\d+) \| (-?\d\.\d+) \| (\d+\.?\d*) \|$", printed, re.M)
    rmse, nll, seconds = map(float, row)
    # Two members after a few steps of sampling are better than the mean of the targets, whose RMSE is 1 and NLL 1.42.
    assert rmse < 0.6 and nll < 1 and seconds > 1


@pytest.mark.skipif(
    not os.environ.get("RAYCHAINS_DATA"), reason="RAYCHAINS_DATA is not set: the concrete table is needed"
)
def test_the_step_sizes_of_the_study_are_judged_by_the_distance_to_hmc(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, fewer in (("WARMUP", 50), ("ROUND", 50), ("LEAST_ESS", 200.0)):
        monkeypatch.setattr(hmc_reference, name, fewer)
    printed = said("posterior_settings.py", "--store", str(tmp_path), "--out", str(tmp_path / "t.csv"))
    assert re.search(r"concrete: HMC, \d+ draws of 8 chains, R-hat 1\.00", printed)
    rows = (tmp_path / "t.csv").read_text().splitlines()
    assert rows[0] == "part,method,lr,total_variation,seconds" and len(rows) == 19
    found = [float(row.split(",")[3]) for row in rows[1:]]
    assert all(0 < distance < 1 for distance in found) and min(found) < 0.1  # the shortest steps hardly move so soon


def test_the_scale_benchmark_tells_of_start_up_events_by_part_and_memory(said: Said) -> None:
    printed = said("scale.py")
    facts, start_up, run, memory = printed.strip().split("\n\n")
    assert facts.startswith("machine: ")
    assert start_up.startswith("start-up with 40 chains, 20 of them finished with 160 samples: ")
    told = re.match(
        r"40 chains on 40 slots, up to 40 at once: (\d+) finished, (\d+) failed, (\d+) workers lost, (\d+) samples", run
    )
    assert told is not None
    finished, failed, lost, samples = map(int, told.groups())
    assert finished + failed == 40 and finished > 30 and lost > 0 and samples >= 8 * finished
    parts = re.findall(r"^  (.{24}) +(\d+\.\d\d) s +\d+\.\d µs an event$", run, re.MULTILINE)
    names = {"coordinator", "evaluation", "lease, other drivers", "loop", "store", "tick, listener", "workers"}
    seconds = {name.strip(): float(value) for name, value in parts}
    assert seconds.keys() == names | {"all of the driver", "Ray's calls beside it"}
    assert abs(sum(seconds[name] for name in names) - seconds["all of the driver"]) < 0.05
    assert re.search(r"driver \d+\.\d{3} ms an event \(goal: at most 1 ms", run)
    assert re.match(r"memory: \d+\.\d kB a chain of 40", memory)


def test_the_benchmark_of_learning_coefficients_sets_chains_against_quadrature(said: Said) -> None:
    printed = said("llc.py", "--chains", "1")
    assert re.search(r"^\| crossing \(0, 1\) \| 0\.5000 \| 0\.4996 \| -?\d\.\d+ ± ", printed, re.M)
