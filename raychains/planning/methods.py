"""Methods: a name, a task and options give a `ChainSpec`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from raychains import priors, samplers
from raychains.chain import last_layer, planned_network
from raychains.chain.planned_network import Start
from raychains.chain.precision import check_task, not_exact
from raychains.core.config import Run, Sampling
from raychains.core.spec import ChainSpec
from raychains.planning import compatible, ensemble_start, packing
from raychains.planning.method_settings import MethodSettings, everywhere, sampler_of, settings_of
from raychains.planning.schedule_settings import schedule_of
from raychains.priors import Gaussian
from raychains.samplers import MethodPreset
from raychains.schedules import Schedule
from raychains.tasks import Task, is_own, splits
from raychains.tasks.defaults import Defaults

BLOCK_DRAWS = 2000
"""Draws per stored block of a low-dimensional target."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """One task under one method and one schedule, with everything resolved but repeat and chain."""

    task: Task
    sampler: str
    """The method's name."""
    schedule: Schedule
    spec: ChainSpec
    """For repeat 0, chain 0; `chain` gives the others."""
    length: int
    """Epochs (steps of a density) that cost as many gradients as the chain at one gradient per step."""
    start: Start
    groups: int
    """Of repeats: those of one group are stacked in one process."""
    members: Method | None = None
    """The deep ensemble: the chain of a repeat and a number starts at the member of the same."""

    def chain(self, repeat: int, chain: int) -> ChainSpec:
        """Return the spec of one chain."""
        member = self.member(repeat, chain)
        start = member.digest if member is not None else None
        return dataclasses.replace(self.spec, repeat=repeat, chain=chain, start_chain=start)

    def member(self, repeat: int, chain: int) -> ChainSpec | None:
        """Return the spec of the chain that one chain starts at; None where it starts at none."""
        return self.members.chain(repeat, chain) if self.members is not None else None

    def members_of(self, repeats: Iterable[int], chains: Iterable[int]) -> dict[str, ChainSpec]:
        """Return the chains by digest that those of these numbers start at."""
        found = [self.member(repeat, chain) for repeat in repeats for chain in chains]
        return {spec.digest: spec for spec in found if spec is not None}

    def _of_noise(self, label: str) -> list[str]:
        """Return a line on the noise that sampling injects, as a standard deviation per step; none of an optimiser."""
        if not label or samplers.KINDS[self.spec.sampler.kind].noisy_counterpart is not None:
            return []
        stds = []
        for k in self.schedule.sampling_ends():
            now, p = self.schedule.at(k), torch.nn.Parameter(torch.zeros(1))
            s = samplers.build(self.spec.sampler, [p], lr=now.lr, temperature=now.temperature, seed=0)
            stds.append(s.effective_noise_std())
        if not any(stds):
            return [f"{label}: no noise is added to the parameters"]
        return [f"{label}: noise sd {stds[0]:.2g} → {stds[1]:.2g} per step while sampling"]

    def _of_split(self) -> list[str]:
        """Return a line on results of a task without test examples."""
        split = unit_and_split(self.task)[1]
        what = {
            "train": "no examples but the training set's: results say nothing about others",
            "val": "no test examples: results are on the split val, which is held out from training",
        }
        return [what[split]] if split in what else []

    def _of_prior(self) -> list[str]:
        """Return a line on the prior of a user's network."""
        own = self.spec.sampler.settings
        if self.spec.prior is not None:
            prior = priors.build(self.spec.prior)
        elif is_own(self.spec.task) and not self.task.low_dimensional and own.get("weight_decay"):
            prior = Gaussian(std=1 / math.sqrt(own["num_data"] * own["weight_decay"]))
        else:
            return []
        return [f"prior: {priors.in_words(prior)}"]

    def notes(self, noise: str = "") -> list[str]:
        """Return lines on its noise, its data, its prior, its chains' start and whether they are reproducible, for the
        printed plan; ``noise`` begins the first, which is left out where it is empty."""
        packed = [f"{self.sampler}: chains run in packs of {self.spec.pack}"] if self.spec.pack > 1 else []
        return [
            *(f"warning: {text}" for text in self.schedule.warnings()),
            *self._of_noise(noise),
            *self.task.data_notes,
            *self._of_split(),
            *self._of_prior(),
            *self.start.notes,
            *packed,
            *([] if self.spec.exact else [not_exact(self.spec)]),
        ]


def unit_and_split(task: Task) -> tuple[str, str]:
    """Return the unit of chains' lengths and the split that arms are evaluated on."""
    return ("steps", "target") if task.low_dimensional else ("epochs", splits.evaluated(task.splits()))


def resolve(options: Sampling, *, task: Task, sampler: str, schedule: str | None = None, halve: bool = False) -> Method:
    """Resolve everything that one method's chains need: options, else the method's settings, else the task's defaults.

    Args:
        schedule: the schedule's; None is the method's own.
        halve: half the epochs or steps, as Table 2's cheaper arm has.

    Raises:
        UserError: a setting out of range, or settings that do not fit together.
    """
    s = settings_of(options, task=task, sampler=sampler, schedule=schedule, halve=halve)
    part = sampler_of(s)
    compatible.check(s, part)
    made = schedule_of(s, part.settings.get("tune", 0))
    parameter = torch.nn.Parameter(torch.zeros(1))
    # Refuses what is out of range, before anything is started.
    built = samplers.build(part, [parameter], lr=made.at(1).lr, temperature=made.temperature, seed=0)
    compatible.check_micro_batch(s, built.parts)
    fitting = "keep" if s.kind.statistics_fit else "reestimate"
    start, members = _start(s)
    options, lengths = s.options, s.lengths
    if s.prior is not None and (options.init_from is None or not options.sample_only):
        planned_network.check_prior(task, s.prior, s.prior_text)
    spec = ChainSpec(
        task=task.spec(),
        sampler=part,
        schedule=made.part(),
        steps=lengths.steps,
        steps_per_epoch=lengths.steps_per_epoch,
        batch_size=lengths.batch_size,
        seed=options.seed,
        repeat=0,
        chain=0,
        threads=options.cpus_per_chain,
        lanes=s.lanes,
        block_draws=BLOCK_DRAWS if task.low_dimensional else 0,
        batchnorm=options.batchnorm or fitting,  # type: ignore[arg-type]
        precision=options.precision,  # type: ignore[arg-type]
        compile=options.compile,  # type: ignore[arg-type]
        exact=options.exact and not options.fast and options.compile == "none",
        start=start.digest,
        start_chain=members.spec.digest if members is not None else None,
        sample_only=start.sample_only,
        micro_batch=s.micro_batch,
        early_stop=s.early_stop,
        prior=None if s.prior is None or everywhere(s.prior) else s.prior.part(),
    )
    spec = dataclasses.replace(spec, pack=packing.pack_width(s, spec))
    if issubclass(s.kind, samplers.LastLayerLaplace):
        last_layer.check_planned(spec, task)
    check_task(spec, task)
    return Method(
        task=task,
        sampler=sampler,
        schedule=made,
        spec=spec,
        length=lengths.length,
        start=start,
        groups=s.repeats // s.lanes,
        members=members,
    )


def _start(s: MethodSettings) -> tuple[Start, Method | None]:
    """Return where the chains start, and the deep ensemble whose members they start at.

    Raises:
        UserError: as `planned_network.start_of`, or a setting of the members out of range.
    """
    options, file = s.options, s.options.init_from
    if s.ensemble is not None:
        return _members(s)
    if file is None:
        return Start(), None
    strict, only = options.init_strict, options.sample_only
    return planned_network.start_of(s.task, file, strict=strict, sample_only=only, lanes=s.lanes), None


def _members(s: MethodSettings) -> tuple[Start, Method]:
    plain = dataclasses.replace(s.of_all, compile="none")  # in packs they are not compiled
    members = resolve(plain, task=s.task, sampler=ensemble_start.METHOD)
    if s.options.compile != "none" and not members.spec.pack:
        members = resolve(s.of_all, task=s.task, sampler=ensemble_start.METHOD)
    chosen = tuple(sorted(set(s.options.sample_only)))
    notes = [planned_network.sampled_note(s.task, chosen)] if chosen else []
    stop = members.spec.early_stop
    assert stop is not None
    about = (
        f"each chain starts at a member of a deep ensemble: {members.spec.sampler.kind}, at most {members.length} "
        f"epochs, stopped after {stop.patience} without a lower loss on the {stop.share:.0%} of the training data "
        "that it holds out"
    )
    return Start(sample_only=chosen, notes=(about, *notes)), members


def schedule_kind(options: Run, method: MethodPreset, base: Defaults) -> str:
    """Return the schedule of a method: as given, else the task's own, else the method's."""
    return options.schedule or (None if method.fixed else base.schedule) or method.schedule
