"""W&B and MLflow through fake clients that record what they are asked; a client that is missing is one line."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import raychains as rc
from raychains import callbacks
from raychains.callbacks import CallbackList
from raychains.callbacks.trackers import MLflow, WandB, wandb_id
from raychains.cli import main
from raychains.core.errors import UserError
from tests.callbacks.events import digests, planned, status, tick

CONFIG = {"epochs": 8, "lr": float("nan"), "sampler": ("sgld", "sghmc")}


def tell(callback: callbacks.Callback) -> None:
    one, two = digests()
    with CallbackList(callback) as several:
        several.on(planned())
        several.on(tick(status(one, 10), status(two, 4, loss=None)))
        several.on(callbacks.ViewDone(arm="arm", group=0, metrics=[{"nll": 0.5}, {"nll": 0.25}], chain_seconds=1))
        several.on(callbacks.ChainDropped(digest=two, reason="loss is nan"))
        several.on(callbacks.ChainFinished(digest=one, seconds=1))


class FakeWandB(ModuleType):
    """Records; a run of the same id is gone on with."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.began: list[dict[str, Any]] = []
        self.logged: list[dict[str, Any]] = []
        self.axes: dict[str, str | None] = {}
        self.summary: dict[str, Any] = {}
        self.finished: list[int] = []
        self.Settings = dict

    def init(self, **asked: Any) -> Any:
        self.began.append(asked)
        return SimpleNamespace(
            log=self.logged.append, summary=self.summary,
            define_metric=lambda name, step_metric=None, hidden=False: self.axes.update({name: step_metric}),
            finish=lambda exit_code: self.finished.append(exit_code),
        )  # fmt: skip


def test_wandb_is_told_config_curves_and_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", fake := FakeWandB())
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    tell(WandB("digits-1a2b", CONFIG))
    [asked] = fake.began
    assert (
        asked["id"] == asked["name"] == "digits-1a2b" and asked["resume"] == "allow" and asked["project"] == "raychains"
    )
    assert asked["config"] == {"epochs": 8, "lr": None, "sampler": ["sgld", "sghmc"]}
    a, b = (d[:12] for d in digests())
    assert [row.get(f"gradients/{a}") or row[f"gradients/{b}"] for row in fake.logged] == [500, 200]
    assert fake.logged[0][f"loss/{a}"] == pytest.approx(1 / 11) and f"loss/{b}" not in fake.logged[1]
    assert fake.axes[f"loss/{a}"] == f"gradients/{a}" and fake.axes[f"gradients/{b}"] is None
    WandB("sweep", CONFIG).on(callbacks.ChainReported(digest="d" * 64, gradients=40, metrics={"nll": 0.5}))
    assert fake.axes[f"nll/{'d' * 12}"] == f"gradients/{'d' * 12}"
    del fake.began[-1], fake.logged[-1]
    assert fake.summary["nll/arm/1"] == 0.5 and fake.summary["nll/arm/2"] == 0.25
    assert fake.summary[f"failed/{b}"] == "loss is nan" and fake.summary["outcome"] == "finished"
    assert fake.finished == [0]
    with pytest.raises(KeyboardInterrupt), CallbackList(WandB("digits-1a2b", {})):
        raise KeyboardInterrupt
    assert fake.finished == [0, 1] and fake.summary["outcome"] == "stopped"
    assert fake.began[1]["id"] == "digits-1a2b"  # resumed: the same W&B run


def test_a_long_name_has_a_short_id_of_its_own() -> None:
    long = "x" * 99
    assert len(wandb_id(long)) == 64 and wandb_id(long) != wandb_id(long + "y")
    assert wandb_id("digits-1a2b") == "digits-1a2b"


class FakeMLflow(ModuleType):
    """A tracking server in memory with the few calls of `MlflowClient` that are used; of MLflow 3 by its
    documentation."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        entity = lambda *names: lambda *values: SimpleNamespace(**dict(zip(names, values, strict=True)))  # noqa: E731
        self.entities = SimpleNamespace(
            Param=entity("key", "value"),
            Metric=entity("key", "value", "timestamp", "step"),
            RunTag=type("RunTag", (), {}),
        )
        self.entities.RunTag.__init__ = lambda tag, key, value: tag.__dict__.update(key=key, value=value)
        self.runs: dict[str, dict[str, Any]] = {}
        self.refuse = 0
        self.MlflowClient = lambda: self

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=name) if self.runs else None

    def create_experiment(self, name: str) -> str:
        return name

    def search_runs(self, experiments: list[str], filter_string: str, max_results: int) -> list[Any]:
        assert experiments == ["raychains"] and max_results == 1
        wanted = filter_string.partition(" = ")[2].strip("'")
        found = [r for r, run in self.runs.items() if run["tags"]["raychains.run"] == wanted]
        return [SimpleNamespace(info=SimpleNamespace(run_id=r)) for r in found]

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        number = f"id{len(self.runs)}"
        self.runs[number] = {
            "name": run_name,
            "tags": dict(tags),
            "params": {},
            "metrics": defaultdict(list),
            "status": "RUNNING",
        }
        return SimpleNamespace(info=SimpleNamespace(run_id=number))

    def update_run(self, number: str, status: str) -> None:
        self.runs[number]["status"] = status

    set_terminated = update_run

    def log_batch(self, number: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        if self.refuse and metrics:
            self.refuse -= 1
            raise ConnectionError("not now")
        run = self.runs[number]
        for m in metrics:
            assert re.fullmatch(r"[/\w.\- ]+", m.key), "MLflow refuses other signs"
            run["metrics"][m.key].append((m.step, m.value))
        for p in params:
            assert run["params"].setdefault(p.key, p.value) == p.value, "parameters cannot be changed"
        run["tags"] |= {t.key: t.value for t in tags}


def test_mlflow_is_told_the_same_and_a_resumed_run_goes_on_in_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", fake := FakeMLflow())
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setattr("raychains.callbacks.trackers.SEND_EVERY", 0.02)
    fake.refuse = 1  # the first batch is sent again
    tell(MLflow("digits-1a2b", CONFIG))
    [run] = fake.runs.values()
    a, b = (d[:12] for d in digests())
    assert run["name"] == run["tags"]["raychains.run"] == "digits-1a2b" and run["status"] == "FINISHED"
    assert run["params"] == {"epochs": "8", "lr": "None", "sampler": "['sgld', 'sghmc']"}
    assert run["metrics"][f"step/{a}"] == [(500, 10.0)] and run["metrics"][f"step/{b}"] == [(200, 4.0)]
    assert run["metrics"]["nll/arm"] == [(1, 0.5), (2, 0.25)] and run["tags"][f"failed.{b}"] == "loss is nan"
    with pytest.raises(KeyboardInterrupt), CallbackList(MLflow("digits-1a2b", {**CONFIG, "resume": True})) as several:
        several.on(tick(status(digests()[0], 30)))
        several.on(callbacks.ViewDone(arm="step-5 fc.*", group=0, metrics=[{"llc": 2.0}], chain_seconds=1))
        assert run["status"] == "RUNNING"
        raise KeyboardInterrupt
    assert len(fake.runs) == 1 and run["status"] == "KILLED"
    assert run["metrics"][f"step/{a}"] == [(500, 10.0), (1500, 30.0)] and "resume" not in run["params"]
    assert run["metrics"]["llc/step-5 fc._"] == [(1, 2.0)]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_client_is_one_line_that_names_the_extra(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("ray.init", None)
    assert main(["run", "--callback", name]) == 2
    said = capsys.readouterr().err
    assert f"pip install 'raychains[{name}]'" in said and said.count("\n") == 1
    assert not list(tmp_path.rglob("*"))


def test_a_client_that_refuses_is_one_line_which_those_before_it_hear(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(FakeWandB):
        def init(self, **asked: Any) -> Any:
            raise RuntimeError("no API key\nat all")

    monkeypatch.setitem(sys.modules, "wandb", Refusing())
    log = tmp_path / "log.jsonl"
    with pytest.raises(UserError, match="callback: wandb cannot begin: RuntimeError: no API key at all"):
        rc.run(task="digits", epochs=8, cycles=2, store=str(tmp_path / "store"), callback="wandb", log=str(log))
    ended = json.loads(log.read_text())
    assert (ended["event"], ended["outcome"]) == ("over", "failed") and "no API key at all" in ended["reason"]
    assert not list((tmp_path / "store" / "drivers").iterdir())
    assert not (tmp_path / "store" / "runs").exists()
