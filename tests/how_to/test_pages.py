"""The pages of docs/how-to that add something, followed to the letter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import raychains as rc
from raychains.chain import packable
from raychains.cli import main
from raychains.inference import file
from raychains.store import RunStore, Storage
from tests.how_to.page import ONE_AT_A_TIME, follow, put, run_tests
from tests.pool import pooled, unpaged
from tests.report import runs

PARTS = (
    "add-a-task.md",
    "add-a-sampler.md",
    "add-a-schedule.md",
    "add-a-callback.md",
    "add-a-measure.md",
    "add-a-likelihood.md",
)


@pytest.fixture(scope="module")
def folder(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That of all parts, whose runs share a store, and with it their actors."""
    with pooled():
        yield tmp_path_factory.mktemp("pages")


def test_one_run_has_a_part_of_every_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pages' tests, then a command with a task, a sampler, a schedule and a callback of one's own, and a measure of
    its run."""
    run_tests(folder, put(*PARTS, folder=folder, monkeypatch=monkeypatch))
    capsys.readouterr()
    own = (
        "--task moons:Moons --task-settings width=8 --sampler lm:LM --schedule warmup:Warmup --schedule-settings "
        "warmup=.2"
    )
    own += " --callback losses:Losses --lr .1 --epochs 20 --chains 2 --repeats 1 --name own"
    with unpaged():  # it is drawn with the measure
        assert main(["run", *own.split(), *ONE_AT_A_TIME]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert sum(bool(re.fullmatch(r"[\w:-]+: NLL \d\.\d{3}", line)) for line in printed) == 1
    assert sum(line.startswith("finished; last losses [") for line in printed) == 1
    result = rc.load("runs/runs/own")
    (arm,) = result.comparison.arms
    assert result.comparison.task_spec.kind == "moons:Moons"
    assert result.comparison.task_spec.settings == {"width": 8, "train": 200, "jitter": 0.05}
    for group in arm.chains:
        assert {spec.sampler.kind for spec in group} == {"lm:LM"}
        assert {spec.schedule.kind for spec in group} == {"warmup:Warmup"}
        assert {(spec.schedule.settings["warmup"], spec.schedule.settings["floor"]) for spec in group} == {(0.2, 0.01)}
    assert arm.label == "LM Warmup, 2 chains" and result.table(full=True)["error"].iloc[0] < 0.35  # .5 of guesses
    assert main(["evaluate", "runs/runs/own", "--measures", "margins:MEASURE"]) == 0
    margins_are_there(folder / "runs" / "runs" / "own")


def margins_are_there(run: Path) -> None:
    """The measure's table, its figure's file and its section of the page."""
    (row,) = pq.read_table(run / "margins.parquet").to_pylist()
    assert 0 < row["mean"] < 1 and 0 <= row["share_below_half"] <= 1
    assert (run / "figures" / "margins.svg").is_file() and "Mean gap between" in (run / "report.html").read_text()


def test_paths_that_lead_to_no_part_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said before Ray or a store is needed."""
    put(*PARTS, folder=tmp_path, monkeypatch=monkeypatch)
    for path in ("losses:missing", "losses:rc", "nowhere:Losses"):
        with pytest.raises(rc.UserError, match=r"callback must .*, got"):
            rc.run(task="digits", epochs=2, callback=path)
    with pytest.raises(rc.UserError, match="lr must be given for sampler lm:LM: task digits has no step size for it"):
        rc.run(task="digits", sampler="lm:LM")
    with pytest.raises(rc.UserError, match=r"sampler must name a subclass of raychains\.Sampler, got 'lm:math'"):
        rc.run(task="digits", sampler="lm:math", lr=0.1)
    with pytest.raises(rc.UserError, match=r"sampler must be an import path 'module:name', got 'nowhere:LM'"):
        rc.run(task="digits", sampler="nowhere:LM", lr=0.1)
    with pytest.raises(rc.UserError, match=r"schedule must name a subclass of raychains\.Schedule, got 'warmup:math'"):
        rc.run(task="gaussian", sampler="sgld", schedule="warmup:math")
    with pytest.raises(rc.UserError, match=r"schedule_settings must be one of .*warmup, got 'warm'"):
        rc.run(task="gaussian", sampler="sgld", schedule="warmup:Warmup", schedule_settings=("warm=.1",))
    begun = RunStore(Storage(tmp_path / "runs"), "begun")
    begun.write_plan({"command": "run", "comparison": runs.single().to_json(), "notes": []})
    run = begun.location()
    with pytest.raises(rc.UserError, match=r"measures must name a raychains\.measures\.Measure, got 'margins:margin'"):
        rc.evaluate(run, measures=["margins:margin"])
    with pytest.raises(rc.UserError, match="measures must be an import path 'module:name', got 'nowhere:MEASURE'"):
        rc.evaluate(run, measures=["nowhere:MEASURE"])


@pytest.mark.long
def test_add_a_callback(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    follow("add-a-callback.md", folder, monkeypatch)
    printed = capsys.readouterr().out.splitlines()
    evaluated = [line for line in printed if re.fullmatch(r"[\w-]+: NLL \d\.\d{3}", line)]
    assert len(evaluated) == 2 and evaluated[0] == evaluated[1], "by the script and by the command"
    assert sum(line.startswith("finished; last losses [") for line in printed) == 2


@pytest.mark.long
def test_add_a_likelihood(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    follow("add-a-likelihood.md", folder, monkeypatch)
    result = rc.load("runs/runs/shop", trust=True)
    row = result.table(full=True).iloc[0]
    assert 0 < row["rmse"] < 8 and row["nll"] < 2.7
    stated = file.describe("shop.safetensors")["likelihood"]
    assert stated == {"path": "zero_inflated:ZeroInflated", "settings": {"hours": 2.0, "missing": True}}
    assert "tensor([[" in capsys.readouterr().out


@pytest.mark.long
def test_add_a_measure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-measure.md", folder, monkeypatch, drawn=("margins:MEASURE",))
    run = folder / "runs" / "runs" / "margins"
    margins_are_there(run)
    with unpaged():
        assert rc.evaluate(str(run), measures=["margins:MEASURE"]).figures["margins"].axes


@pytest.mark.long
def test_add_a_sampler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-sampler.md", folder, monkeypatch)
    result = rc.load("runs/runs/lm")
    (arm,) = result.comparison.arms
    assert {spec.sampler.kind for group in arm.chains for spec in group} == {"lm:LM"} and arm.label == "LM, 2 chains"
    assert (
        result.table(full=True)["variance_error"].iloc[0] < 0.5 and result.table(full=True)["mean_error"].iloc[0] < 0.5
    )
    second = rc.load("runs/runs/midpoint")
    assert second.table(full=True)["error"].iloc[0] < 0.3  # .9 of guesses
    spec = next(iter(second.comparison.chains().values()))
    assert packable.refusal(spec, rc.make_task("digits")) is None
    from midpoint import Midpoint  # written by the page

    theta, lr = torch.nn.Parameter(torch.zeros(50_000, dtype=torch.float64)), 0.5
    sampler = Midpoint([theta], lr=lr, num_data=1, seed=0)

    def closure() -> torch.Tensor:
        theta.grad = theta.detach().clone()
        return theta.detach().square().mean() / 2

    for _ in range(60):
        sampler.step(closure)
    exact = 2 * lr / (1 - (1 - lr + lr**2 / 2) ** 2)  # of θ ← (1 − lr + lr²/2)·θ + √(2·lr)·ξ
    assert theta.detach().var().item() == pytest.approx(exact, rel=5 * (2 / 50_000) ** 0.5)


@pytest.mark.long
def test_add_a_schedule(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-schedule.md", folder, monkeypatch)
    result = rc.load("runs/runs/warmup")
    (arm,) = result.comparison.arms
    (spec, _), *_ = arm.chains
    assert spec.schedule.kind == "warmup:Warmup" and spec.schedule.settings["warmup"] == 0.2
    assert spec.schedule.settings["floor"] == 0.01 and arm.label == "SGLD Warmup, 2 chains"
    row = result.table(full=True).iloc[0]
    assert row["mean_error"] < 0.4 and row["variance_error"] < 0.5  # 1 of chains that stand still


@pytest.mark.long
def test_the_page_on_tasks_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follow("add-a-task.md", folder, monkeypatch)
    result = rc.load("runs/runs/moons")
    spec = result.comparison.task_spec
    assert spec.kind == "moons:Moons" and spec.settings == {"width": 8, "train": 200, "jitter": 0.05}
    assert result.table(full=True)["error"].iloc[0] < 0.35


@pytest.mark.long
@pytest.mark.usefixtures("folder")
def test_the_page_on_densities_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = ("first.py", "--name logistic", "--name schools")
    follow("own-density.md", tmp_path, monkeypatch, drawn)
    functions_and_class_are_what_the_page_says()
    found = {path.name: rc.load(str(path)) for path in Path("runs/runs").iterdir()}
    row = {name: result.table(full=True).iloc[0] for name, result in found.items()}
    first = row["first"]
    assert [first["mean x"], first["mean y"]] == pytest.approx([0, 0], abs=0.25)
    assert [first["sd x"], first["sd y"]] == pytest.approx([1, 1.25**0.5], rel=0.2)
    assert found["banana"].comparison.task_spec.settings == {"bend": 0.3} and len(found["bananas"].table()) == 4
    assert row["banana"]["mean_error"] < 0.3 and row["banana"]["variance_error"] < 0.5
    assert row["banana-class"]["sd_ratio"] < 1.5
    assert row["logistic"]["mean_error"] < 0.4 and row["logistic"]["sd_ratio"] < 1.3
    (arm,) = found["logistic"].comparison.arms
    assert arm.chains[0][0].batch_size == 50
    for name, exact in eight_schools().items():
        mean, sd = row["schools"][f"mean {name}"], row["schools"][f"sd {name}"]
        assert abs(mean - exact[0]) < 0.4 * exact[1] and sd == pytest.approx(exact[1], rel=0.3)
    for figures in (Path("runs/runs") / name / "figures" for name in ("first", "logistic", "schools")):
        assert {"mixing.svg", "traces.svg", "ranks.svg"} <= {file.name for file in figures.iterdir()}
    assert Path("runs/runs/first/figures/density.svg").is_file()


def functions_and_class_are_what_the_page_says() -> None:
    """The two bananas are one density, minibatches of an epoch average to the gradient of all rows, and lanes do not
    depend on one another."""
    import banana  # written by the page
    import banana_class
    import logistic

    points = np.array([[0.5, -1.0], [2.0, 3.0]])
    potentials = (made.potential(points) for made in (banana.make_task(bend=0.3), banana_class.Banana()))
    assert all(np.allclose(function, own) for function, own in zip(*potentials, strict=True))
    task, theta = logistic.make_task(), torch.randn(5, 3, dtype=torch.float64)
    exact = torch.func.grad(task.log_density)(theta[0])
    each = [torch.func.grad(task.estimate)(theta[0], rows) for rows in torch.randperm(200).reshape(10, 20)]
    assert torch.allclose(torch.stack(each).mean(0), exact)
    assert torch.allclose(task.log_density(theta)[2:3], task.log_density(theta[2:3]))
    spec = rc.make_task("banana:make_task", bend=0.3).spec()
    assert spec.settings == {"bend": 0.3} and spec.kind == "banana:make_task"


def eight_schools() -> dict[str, tuple[float, float]]:
    """Exact means and standard deviations of μ and log τ: θ and μ are integrated out in closed form, τ on a grid."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    log_tau = np.linspace(-12, 7, 8001)
    variance = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]) ** 2 + np.exp(2 * log_tau)[:, None]
    precision = 1 / 25 + (1 / variance).sum(1)
    mu = (y / variance).sum(1) / precision
    log_weight = (-np.log(variance) / 2 - y**2 / (2 * variance)).sum(1) + mu**2 * precision / 2 - np.log(precision) / 2
    log_weight += log_tau - np.log1p((np.exp(log_tau) / 5) ** 2)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    moments = {"mu": (mu, 1 / precision + mu**2), "log_tau": (log_tau, log_tau**2)}
    means = {name: float(weight @ first) for name, (first, _) in moments.items()}
    return {
        name: (means[name], float(weight @ second - means[name] ** 2) ** 0.5) for name, (_, second) in moments.items()
    }
