"""The arms of `raychains local`: chains around checkpoints w*, at the temperature N/nβ with a prior centred at w*."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raychains import samplers
from raychains.chain import planned_network
from raychains.core import settings_parser
from raychains.core.config import Local, Run
from raychains.core.errors import UserError, require
from raychains.core.validation import integer
from raychains.planning import compatible, methods
from raychains.planning.method_settings import layered
from raychains.planning.presets import arms
from raychains.planning.presets.arms import MethodArm, Planned
from raychains.priors import Centred
from raychains.schedules import NonCyclical
from raychains.tasks import Task
from raychains.tasks.user_defaults import defaults_of

EPSILON, DRAWS, EPS = 1e-4, 200, 0.1
"""Defaults of ``epsilon`` and ``draws``, and of the number that pSGLD adds to the root mean square of gradients."""


def local(options: Local, task: Task) -> Planned:
    """Return a comparison of one task with an arm for each checkpoint and each group of parameters.

    Raises:
        UserError: a setting out of range, or a task that is a density.
    """
    about = f"be a network's for a local posterior, got the density {options.task}"
    if task.low_dimensional or "train" not in task.splits():
        raise UserError(f"task must {about}")
    n = task.num_data
    require(
        options.nbeta is not None or n > 2, "nbeta", options.nbeta, f"be given for {n} examples: n/ln n is no number"
    )
    nbeta = options.nbeta if options.nbeta is not None else n / math.log(n)  # which 1 example has not
    labels = 1.0 if options.sampler == "psgld" else task.labels_per_example  # whose steps do not grow with the gradient
    epsilon = layered(options.epsilon, EPSILON / labels)
    lr = layered(options.lr, epsilon * nbeta / 2)
    own, burn_in = _chains(options, task, lr=float(lr), temperature=n / nbeta)
    compatible.check_used(own, {options.sampler: samplers.method(options.sampler)}, ["constant"])
    chosen = [tuple(options.parameters), *((group,) for group in options.groups)]
    planned_network.check_patterns(task, parameters=options.parameters, groups=options.groups)
    names = _names(options.init_from)
    about = (
        f"local posterior: nβ = {nbeta:.5g} of n = {n}, γ = {options.gamma:g}, ε = {2 * float(lr) / nbeta:.3g} "
        f"(lr = {float(lr):.3g}), {burn_in} epochs of burn-in"
    )
    made: list[MethodArm] = []
    numbers: dict[str, int] = {}  # of the first file with the same tensors
    for k, (file, name) in enumerate(zip(options.init_from, names, strict=True)):
        for patterns in chosen:
            method = methods.resolve(
                dataclasses.replace(own, init_from=file, sample_only=patterns),
                task=task, sampler=options.sampler, schedule="constant",
            )  # fmt: skip
            if options.gamma > 0:
                prior = Centred(std=math.sqrt(nbeta / (n * options.gamma))).part()
                method = dataclasses.replace(method, spec=dataclasses.replace(method.spec, prior=prior))
            assert method.start.digest is not None
            same = options.init_from[numbers.setdefault(method.start.digest, k)]
            new = numbers[method.start.digest] == k
            require(new, "init_from", file, f"name each start once: its tensors are those of {same}")
            group = " ".join(patterns)
            made.append(
                MethodArm(
                    method=method,
                    name=f"{name} {group}" if group else name,
                    label=f"{name}, {group}" if group else name,
                    chains=options.chains,
                )
            )
    return arms.planned(options.task, made, notes=[about], split="train")


def _chains(options: Local, task: Task, *, lr: float, temperature: float) -> tuple[Run, int]:
    """Return the options of the chains as `methods.resolve` reads them, and the epochs of their burn-in."""
    base = defaults_of(task).of(samplers.method(options.sampler).kind)
    epochs = layered(options.epochs, base.epochs)
    batch = layered(options.batch_size, base.batch_size)
    assert epochs is not None
    integer("batch_size", batch, 1, task.num_data)
    burn_in = layered(options.burn_in, epochs // 5)
    integer("burn_in", burn_in, 0, epochs - 1, f": of {epochs} epochs at least one is kept")
    per_epoch = math.ceil(task.num_data / batch)
    steps, unkept = epochs * per_epoch, burn_in * per_epoch
    most = math.ceil((steps - unkept) / (options.thinning or 1))
    draws = layered(options.draws, min(DRAWS, most))
    thinning = layered(options.thinning, max(1, (steps - unkept) // draws))
    room = math.ceil((steps - unkept) / thinning)
    require(draws <= room, "draws", draws, f"be at most {room}: the steps behind the burn-in, {thinning} apart")
    given = settings_parser.values(options.sampler_settings)
    own: dict[str, Any] = {}
    if options.sampler == "psgld":
        own = {"eps": EPS, **({"freeze_preconditioner_after": unkept} if unkept else {})}
    fields = {f.name: getattr(options, f.name) for f in dataclasses.fields(Run) if hasattr(options, f.name)}
    fields |= {
        "lr": lr,
        "temperature": temperature,
        "weight_decay": layered(options.weight_decay, 0.0),
        "epochs": epochs,
        "burn_in": 0,
        "thinning": thinning,
        "pack": "none",
        "repeats": layered(options.repeats, 1),
        "sampler_settings": {**own, **given},
        "schedule_settings": {
            "samples": draws,
            "warm_up": NonCyclical.noise_from_steps(unkept, steps=steps),
        },
        "init_from": None,
    }
    return Run(**fields), burn_in


def _names(files: Sequence[str]) -> list[str]:
    """Return the arms' names: the files' own, numbered where several are called the same."""
    stems = [Path(file).stem for file in files]
    return [stem if stems.count(stem) == 1 else f"{stem}-{k}" for k, stem in enumerate(stems)]
