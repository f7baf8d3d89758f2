"""The posterior predictive of a run's samples: the average of their probabilities."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raychains import samplers, schedules, tasks
from raychains.chain.precision import DTYPES, built
from raychains.chain.sample_index import expected_samples
from raychains.core import tree
from raychains.core.errors import UserError, require, unknown_name
from raychains.core.rng import seeded
from raychains.core.sample import check_tensors
from raychains.core.spec import ChainSpec
from raychains.core.tree import Tree
from raychains.core.user_code import is_local, is_path
from raychains.core.validation import integer, is_int, is_number
from raychains.evaluation.evaluation import fed, normalised
from raychains.evaluation.regression import outputs
from raychains.inference.families import family_of
from raychains.inference.networks import first_input, refused, tree_of
from raychains.planning.comparison import Arm, Comparison
from raychains.store import ChainStore, RunStore, SampleRecord, Storage, initial_states
from raychains.tasks import Task

Records = tuple[tuple[ChainSpec, SampleRecord], ...]
"""Each sample's chain and record."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The samples of one arm and one group of repeats, in the order of views: first draws of all chains first."""

    root: Storage
    task: Task
    arm: str
    records: Records
    weights: Sequence[float] | None = None
    """Of the samples, sum 1; None where all weigh the same."""

    def stored(self) -> Iterator[dict[str, Tensor]]:
        """Yield each sample's tensors as they are stored, read one at a time.

        Raises:
            Corrupt: a file is torn or altered.
        """
        for spec, record in self.records:
            yield ChainStore(self.root, spec.digest).sample(record.file)[0]

    def completed(self) -> Iterator[dict[str, Tensor]]:
        """Yield each sample's tensors with those that stayed at the chain's start: whole state dicts.

        Raises:
            UserError: one has other tensors than the task's network.
        """
        complete = initial_states.Completion(self.root)
        model = self.task.build_model(seed=0, lanes=1)
        network, own = model.state_dict(), built(model)
        for (spec, record), tensors in zip(self.records, self.stored(), strict=True):
            whole = complete(tensors, initial_states.needed(spec))
            check_tensors(whole, network, f"{self.root.location(f'chains/{spec.digest}/{record.file}')}: ")
            yield {n: t if n in tensors else as_in_chain(t, network[n].dtype, own, spec) for n, t in whole.items()}


def as_in_chain(start: Tensor, initial: torch.dtype, own: set[torch.dtype], spec: ChainSpec) -> Tensor:
    """Return a tensor of a chain's start in the dtype that it has there.

    Args:
        start: the tensor.
        initial: its dtype in the network.
        own: the network's `built` dtypes.
        spec: of the chain.
    """
    start = start.to(initial)
    return start.to(DTYPES[spec.precision]) if initial in own else start


def _records(
    root: Storage, arm: Arm, chains: Sequence[ChainSpec], first: int | None, dropped: Collection[str], unfinished: bool
) -> Records:
    """Return samples of an arm's ``chains``, first draws of all chains first; other arguments as for `select`."""
    found: list[tuple[int, int, ChainSpec, SampleRecord]] = []
    for position, spec in enumerate(chains):
        store = ChainStore(root, spec.digest)
        if not store.finished(expected_samples(spec)):
            if spec.digest in dropped:
                continue
            if not unfinished:
                raise UserError(
                    f"arm {arm.name!r} has an unfinished chain, {spec.digest[:12]}: continue the run with `resume=True`"
                )
        records = [record for record in store.records() if arm.takes(record.meta.variable)]
        found += [(record.meta.index, position, spec, record) for record in records]
    found.sort(key=lambda f: f[:2])
    if unfinished and not found:
        raise UserError(f"arm {arm.name!r} has no samples yet")
    if first is not None and not unfinished:
        integer("first", first, 1, len(found), ", the arm's samples")
    return tuple((spec, record) for _, _, spec, record in found[:first])


def chains_of(comparison: Comparison, arm: str | None, group: int) -> tuple[Arm, Sequence[ChainSpec]]:
    """Return an arm, by default the first, and the chains of one group of its repeats.

    Raises:
        UserError: an unknown arm or group.
    """
    arms = {a.name: a for a in comparison.arms}
    name = arm if arm is not None else comparison.arms[0].name
    if not isinstance(name, str) or name not in arms:
        raise unknown_name("arm", name, arms)
    groups = arms[name].chains
    require(is_int(group) and 0 <= group < len(groups), "group", group, f"lie in [0, {len(groups) - 1}]")
    return arms[name], groups[group]


def select(
    root: Storage,
    comparison: Comparison,
    arm: str | None = None,
    group: int = 0,
    first: int | None = None,
    *,
    dropped: Collection[str] = (),
    unfinished: bool = False,
) -> Selection:
    """Return the samples of a run's arm.

    Args:
        root: the store.
        comparison: the run's comparison.
        arm: the arm's name; default the first.
        group: which group of repeats.
        first: take this many samples only, in the order of views.
        dropped: digests of chains that the run was evaluated without, unless they finished since.
        unfinished: take the samples that are there of chains that still run; of ``first`` as many as there are.

    Raises:
        UserError: an unknown arm or group, an unfinished chain, or with ``unfinished`` no sample; a task that predicts
            nothing, or one that would have to be imported because the store names it.
    """
    chosen, chains = chains_of(comparison, arm, group)
    spec = chains[0]
    tasks.check_known(spec.task)
    task = tasks.build(spec.task)  # arms may have networks of their own on the same data
    if task.low_dimensional:
        raise UserError(
            f"task {comparison.task} is a density and predicts nothing: its draws are in {root.location('chains')}"
        )
    records = _records(root, chosen, chains, first, dropped, unfinished)
    weights = chosen.weights([spec.digest for spec, _ in records])
    return Selection(root=root, task=task, arm=chosen.name, records=records, weights=weights)


def dropped_chains(run: RunStore, comparison: Comparison) -> set[str]:
    """Return the digests of a run's chains that were given up although their arm has results."""
    failed, results = run.table("failed"), run.table("results")
    if failed is None or results is None or not results.num_rows:
        return set()
    evaluated = set(zip(results["arm"].to_pylist(), results["group"].to_pylist(), strict=True))
    groups = [(a.name, g, chains) for a in comparison.arms for g, chains in enumerate(a.chains)]
    chains = {spec.digest for name, g, specs in groups if (name, g) in evaluated for spec in specs}
    return chains & set(failed["digest"].to_pylist())


def import_parts(comparison: Comparison, *, task: bool = True) -> None:
    """Import the users' classes that a run names, and with ``task`` its task's module, which runs their code.

    Raises:
        UserError: a module that cannot be imported.
    """
    for spec in comparison.chains().values():
        for kinds, part in ((samplers.KINDS, spec.sampler), (schedules.KINDS, spec.schedule)):
            if is_path(part.kind) and not is_local(part.kind):
                kinds.find(part.kind)
    if task and not tasks.is_known(comparison.task_spec):
        tasks.kind_of(comparison.task_spec.kind)


class Predictive:
    """p(y | x) = Σ_s w_s p(y | x, θ_s) over the samples of one arm and one group of repeats; w_s = 1/S unless chains
    have shares.

    Samples are read from the store one at a time at each call, so memory holds one network.
    """

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._model = selection.task.build_model(seed=0, lanes=1).eval()
        self._family = family_of(selection.task, self._model)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._selection.records)

    def __call__(self, x: Any) -> np.ndarray[Any, Any]:
        """Return probabilities [n, classes], float64, of inputs ``x`` [n, …]: arrays, dicts or tuples of them, as the
        task's data are; of a task with a ``collate_fn`` what that makes of examples.

        Of labels per position they are [n, positions …, classes], the classes last in either order of the network's
        outputs, at most 1 GiB of them in one call.

        Inputs of bytes (uint8) are prepared as the task does it; others are taken as prepared already. Of a regression
        and of a likelihood that is a distribution the mean of `mean_and_std`: of labels their probabilities.

        Raises:
            UserError: the task's likelihood is the user's own function, of which only `outputs` is known; or more
                probabilities than that.
        """
        inputs = self._inputs(x)
        return self._family.average(self._selection.completed(), inputs, self._selection.weights)

    def mean_and_std(self, x: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return mean and standard deviation, noise included, of a regression's predictive at inputs ``x`` [n, …].

        Both [n], or [n, outputs] where there are several: those of the mixture Σ_s w_s N(μ_s(x), σ_s(x)²), or of that
        of the likelihood's distributions.

        Raises:
            UserError: the task predicts neither.
        """
        inputs = self._inputs(x)
        mean, std = self._family.moments(self._selection.completed(), inputs, self._selection.weights)
        return (mean[:, 0], std[:, 0]) if mean.shape[1] == 1 else (mean, std)

    def quantiles(self, x: Any, levels: Sequence[float]) -> np.ndarray[Any, Any]:
        """Return the quantiles of a regression's predictive at inputs ``x`` [n, …], noise included.

        Args:
            levels: probabilities in (0, 1), as in ``[0.05, 0.5, 0.95]``.

        Returns:
            [n, levels], or [n, outputs, levels] where there are several outputs: quantiles of the mixture
            Σ_s w_s N(μ_s(x), σ_s(x)²).

        Raises:
            UserError: the task is no regression with Gaussian noise, or a level out of range.
        """
        ok = isinstance(levels, list | tuple) and bool(levels) and all(is_number(q) and 0 < q < 1 for q in levels)
        require(ok, "levels", levels, "be a list of probabilities between 0 and 1, as in [0.05, 0.5, 0.95]")
        inputs = self._inputs(x)
        found = self._family.quantiles(self._selection.completed(), inputs, self._selection.weights, levels)
        return found[:, 0] if found.shape[1] == 1 else found

    def draws(self, x: Any, n: int, seed: int = 0) -> np.ndarray[Any, Any]:
        """Return ``n`` draws of the targets from the predictive at inputs ``x``, [n, inputs, targets].

        Each draw takes a sample by its weight, the same at all inputs, and then targets from its distribution: of a
        regression from its Gaussian, noise included, of a classifier a class, which is one target, of labels per
        position a class at each, [n, inputs, positions …].

        Args:
            x: [inputs, …].
            n: at least 1.
            seed: equal seeds give equal draws.

        Raises:
            UserError: the task's likelihood is the user's own function, or a setting out of range.
        """
        integer("n", n, 1)
        integer("seed", seed)
        inputs, streams = self._inputs(x), np.random.default_rng(seed)
        weights = normalised(self._selection.weights, len(self))
        chosen, seeds = streams.choice(len(self), n, p=weights), streams.integers(2**62, size=len(self))
        found: np.ndarray[Any, Any] | None = None
        for s, tensors in enumerate(self._selection.completed()):
            at = np.flatnonzero(chosen == s)
            if not len(at):
                continue
            each = self._family.distribution(tensors, inputs)
            with seeded(int(seeds[s])):
                part = each.sample(torch.Size([len(at)])).numpy()
            found = np.empty((n, *part.shape[1:]), part.dtype) if found is None else found
            found[at] = part
        assert found is not None  # n is at least 1
        return found

    def outputs(self, x: Any) -> np.ndarray[Any, Any]:
        """Return the network's outputs under each sample, [samples, n, …], for inputs ``x`` [n, …]."""
        inputs = self._family.prepared(self._inputs(x))
        return np.stack([outputs(self._model, t, inputs).numpy() for t in self._selection.completed()])

    def _inputs(self, x: Any) -> Tree:
        """Return a user's inputs as tensors, of which the network takes the first examples.

        Raises:
            UserError: no blocks of numbers, or of other shapes.
        """
        inputs = tree_of(x)
        tree.check_sizes(inputs, "x")
        dtype = next(self._model.parameters()).dtype
        try:
            with torch.no_grad():
                self._model(fed(self._family.prepared(tree.at(inputs, slice(1))), dtype))
        except Exception as error:  # of the network
            first = first_input(self._selection.task)
            usual = "" if first is None or isinstance(first, Tensor) else tree.described(first)
            raise refused(inputs, error, usual) from error
        return inputs
