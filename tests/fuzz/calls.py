"""The public Python API as calls with good arguments, of which a test replaces some."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import raychains as rc
from raychains import priors
from raychains.core.config import Evaluate, Export, Plan, Prepare, Reproduce, Serve
from raychains.samplers import KINDS as SAMPLERS


@dataclasses.dataclass(frozen=True)
class Call:
    """A function and keyword arguments with which it works."""

    function: Callable[..., Any]
    good: Callable[[], Mapping[str, Any]]
    others: tuple[str, ...] = ()
    """Further arguments, where the signature does not name them."""
    after: Callable[[Any], Any] = lambda made: None
    """What is done with what it returned, under the same promise."""

    @property
    def names(self) -> tuple[str, ...]:
        """All arguments that are replaced: those of the signature, too, which have good defaults."""
        signature = inspect.signature(self.function).parameters
        named = [name for name, p in signature.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        return tuple(dict.fromkeys([*self.good(), *self.others, *named]))


def small() -> dict[str, Any]:
    return {
        "task": "digits", "task_settings": {"hidden": [4], "train": 60}, "epochs": 4, "chains": 1, "cycles": 2,
        "exploration": 0.5, "store": "store", "progress": False,
    }  # fmt: skip


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(3))]


def step(sampler: rc.Sampler) -> None:
    """Make one step on a quadratic loss."""

    def closure() -> torch.Tensor:
        sampler.zero_grad()
        loss = sum((p.double() ** 2).sum() for p in sampler.parameters())
        loss.backward()  # type: ignore[union-attr]
        return loss  # type: ignore[return-value]

    if getattr(sampler, "parts", 1) > 64 or not any(p.requires_grad for p in sampler.parameters()):
        return
    closure()
    needed = getattr(sampler, "gradients_per_step", 1) > 1
    parts = getattr(sampler, "parts", 1)
    sampler.step(([closure] * parts if parts > 1 else closure) if needed else None)


def values(schedule: rc.Schedule) -> None:
    """Ask a schedule for its ends and what it says of itself."""
    for k in (1, schedule.steps):
        schedule.at(k)
    schedule.part(), schedule.kept, schedule.warnings(), schedule.sampling_ends()


def in_a_group(kind: Any, given: dict[str, Any]) -> Callable[..., rc.Sampler]:
    """Return what builds a sampler whose only group has settings of its own."""
    return lambda **group: kind([{"params": parameters(), **group}], **given)


def network() -> nn.Module:
    return nn.Linear(2, 3)


def examples() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])


def evaluations(task: Any) -> None:
    """Read what a task says of itself, and evaluate its network's initial parameters on each split."""
    task.spec()
    model = task.build_model(seed=0, lanes=1)
    if not task.low_dimensional:
        for split in task.splits().values():
            split.predict(model.state_dict(), 0)


def members() -> list[dict[str, torch.Tensor]]:
    return [{k: v.clone() for k, v in network().state_dict().items()} for _ in range(2)]


def calls(store: Path, result: rc.Result) -> dict[str, Call]:
    """Return all calls.

    Args:
        store: of a finished run ``small``.
        result: that run.
    """
    run, whole = str(store / "runs" / "small"), str(store / "whole.safetensors")
    of_density = ("init_sd", "names", "reference", "defaults", "data", "log_prior", "name", "version")

    def density(**good: Any) -> Call:
        return Call(rc.Task.from_log_density, lambda: good, of_density, evaluations)

    found = {
        "rc.run": Call(rc.run, small),
        "rc.compare": Call(rc.compare, small),
        "rc.sweep": Call(rc.sweep, lambda: {**small(), "grid": {"lr": [0.1, 0.2]}}),
        "rc.Run": Call(rc.Run, dict),
        "rc.Compare": Call(rc.Compare, dict),
        "rc.Sweep": Call(rc.Sweep, dict),
        "Evaluate": Call(Evaluate, lambda: {"run": run}),
        "Export": Call(Export, lambda: {"run": run}),
        "Serve": Call(Serve, lambda: {"source": run}),
        "Plan": Call(Plan, dict),
        "Prepare": Call(Prepare, lambda: {"set": "x", "source": "y"}),
        "rc.evaluate": Call(rc.evaluate, lambda: {"path": run, "progress": False}),
        "rc.load": Call(rc.load, lambda: {"path": run}),
        "rc.draw_report": Call(rc.draw_report, lambda: {"path": run}),
        "rc.reproduce": Call(
            rc.reproduce,
            lambda: {"names": ("fig2",), "dry_run": True, "store": "store", "progress": False},
            tuple(inspect.signature(Reproduce).parameters),
        ),
        "rc.make_task": Call(rc.make_task, lambda: {"name": "digits"}, ("train", "hidden", "split_seed")),
        "rc.tune.trainable": Call(
            rc.tune.trainable,
            lambda: {k: v for k, v in small().items() if k not in ("chains", "progress")},
            ("lr", "sampler", "val_split", "schedule", "cpus_per_chain"),
        ),
        "rc.tune.search_space": Call(
            rc.tune.search_space, lambda: {"task": "digits", "epochs": 8}, ("val_split", "sampler", "exploration")
        ),
        "rc.tune.report": Call(rc.tune.report, lambda: {"results": [], "trainable": int}),
        "rc.serve.deployment": Call(rc.serve.deployment, lambda: {"source": whole}),
        "result.predict": Call(result.predict, lambda: {"x": np.zeros((2, 64), np.float32)}),
        "result.predictive": Call(result.predictive, dict),
        "result.posterior": Call(result.posterior, dict),
        "result.export": Call(result.export, lambda: {"to": "x.safetensors"}),
        "result.table": Call(result.table, dict),
        "posterior(x)": Call(lambda x: result.posterior()(x), lambda: {"x": torch.zeros(2, 64)}),
        "rc.PosteriorPredictive": Call(
            rc.PosteriorPredictive,
            lambda: {"model": network(), "samples": members()},
            after=lambda made: made(torch.zeros(2, 2)),
        ),
        "rc.PosteriorPredictive.load": Call(
            rc.PosteriorPredictive.load, lambda: {"file": whole}, after=lambda made: made(torch.zeros(2, 64))
        ),
        "rc.Task.from_module": Call(
            rc.Task.from_module,
            lambda: {"model_fn": network, "train_set": examples(), "test_set": examples(), "name": "own"},
            ("noise", "val", "val_split", "split_seed", "version", "resident", "metrics", "defaults"),
            evaluations,
        ),
        "rc.Task.from_log_density": density(logp=lambda x: -(x**2).sum(), dim=2),
        "rc.Task.from_log_density(init)": density(
            logp=lambda x: -sum((v**2).sum() for v in x.values()), init={"a": 0.0, "b": np.zeros(2)}
        ),
        "rc.Task.from_log_density(data)": density(
            logp=lambda x, rows: -((rows - x) ** 2).sum(-1), init=np.zeros(2), data=np.ones((5, 2))
        ),
        "rc.Chain": Call(rc.Chain, lambda: {"spec": spec(result)}),
        "rc.ChainSpec.from_json": Call(rc.ChainSpec.from_json, lambda: {"data": spec(result).to_json()}),
        "rc.ScheduleLR": Call(
            rc.ScheduleLR,
            lambda: {"optimizer": rc.SGLD(parameters(), lr=0.1, num_data=3), "schedule": rc.Constant(steps=3, lr=0.1)},
        ),
        "rc.Metric": Call(rc.Metric, lambda: {"name": "own", "label": "Own", "better": "lower"}),
        "priors.Product": Call(priors.Product, lambda: {"factors": [priors.Gaussian(std=1.0)]}),
    }
    for name, kind in SAMPLERS.items():
        given: dict[str, Any] = {"lr": 0.01, "num_data": 10}
        given |= {"momentum": 0.9} if name in ("sgdm", "sghmc") else {"eta": 0.1} if name == "emcmc" else {}
        found[f"rc.{kind.__name__}"] = Call(kind, lambda given=given: {"params": parameters(), **given}, after=step)
        others = ("momentum", *inspect.signature(kind).parameters)
        found[f"rc.{kind.__name__}(group)"] = Call(in_a_group(kind, given), dict, others, step)
    known = {"steps": 100, "lr": 0.1, "cycles": 4, "exploration": 0.5, "final_lr": 0.01, "milestones": (0.5,)}
    known |= {"factor": 0.1, "a": 0.1, "b": 1.0, "gamma": 0.55}
    for kind in (rc.Constant, rc.Cyclical, rc.Decreasing, rc.Exponential, rc.Linear, rc.Step):
        given = {k: v for k, v in known.items() if k in inspect.signature(kind).parameters}
        found[f"rc.{kind.__name__}"] = Call(kind, lambda given=given: given, after=values)
    for prior in (priors.Gaussian, priors.Laplace, priors.GroupLaplace, priors.UnitNorm):
        (setting,) = inspect.signature(prior).parameters.keys() - {"match"}
        found[f"priors.{prior.__name__}"] = Call(prior, lambda setting=setting: {setting: 1.0})
    return found


def spec(result: rc.Result) -> rc.ChainSpec:
    return next(iter(result.comparison.chains().values()))
