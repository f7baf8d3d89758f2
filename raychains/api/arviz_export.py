"""A run's draws as ArviZ's DataTree, with which its plots and statistics work: the optional extra ``arviz``."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor

import raychains
from raychains import schedules
from raychains.chain.initialization import some
from raychains.core.errors import UserError, near_miss, require, unknown_name
from raychains.core.sample import THETA, SampleMeta
from raychains.core.spec import ChainSpec, digest_of
from raychains.evaluation.evaluation import Array, Evaluation, gather
from raychains.inference.families import Family, family_of
from raychains.inference.predictive import Selection, chains_of, select
from raychains.measures.draws import finished, labels_of, of_network, read, target_of, variables_of
from raychains.planning import Comparison
from raychains.store import Storage
from raychains.store.caches import Predictions
from raychains.store.caches import predictions as predictions_of
from raychains.tasks import Task
from raychains.tasks.base import Variable

if TYPE_CHECKING:
    from xarray import DataTree

Groups = dict[str, dict[str, Any]]
Item = TypeVar("Item")
Key = TypeVar("Key")

MOST = 100_000_000
"""Numbers of all draws of the chosen parameters that are held at most."""


def to_arviz(
    root: Storage,
    comparison: Comparison,
    task: Task,
    arm: str | None = None,
    group: int = 0,
    *,
    variable: str = THETA,
    selection: Selection | None = None,
    predictions: Iterable[Array] | None = None,
    evaluation: Evaluation | None = None,
    seed: int = 0,
    parameters: str | Sequence[str] | None = None,
) -> DataTree:
    """Return the samples of one arm and group of repeats; chains that are not finished are left out.

    Of a density ``posterior`` holds every coordinate as ``theta`` [chain, draw, repeat, coordinate], or its named
    variables [chain, draw, repeat, *shape], without ``repeat`` where the chains have one lane, and ``sample_stats`` the
    log density ``lp``. Of networks ``posterior`` holds numbers of θ and of what it predicts, ``norm`` and
    ``projection`` [chain, draw, direction], ``p_label`` and ``entropy`` (averaged), and ``log_likelihood`` log p(label)
    of every example, as leave-one-out statistics of ``arviz_stats`` want it: on a held-out split it is a log
    *predictive* density of each sample. ``sample_stats`` has lr, temperature, cycle, step and stage of each draw, and
    of networks train_nll. Chains of unequal length count with their last draws.

    With ``parameters``, ``posterior`` holds these parameters of networks instead, each by its name as [chain, draw, its
    own dimensions], ``log_likelihood`` log p(target) of every example, and ``posterior_predictive`` a target of every
    example drawn under each sample.

    Args:
        arm: the arm's name; default the first.
        group: which group of repeats.
        variable: ``theta``, or another that the sampler draws (``anchor``).
        selection: the arm's samples, of a network (`raychains.inference.predictive.select`).
        predictions: each sample's log-probabilities [examples, classes] in the selection's order, of a classifier; with
            ``parameters`` predictions of a regression, too.
        evaluation: the split that they are on.
        seed: of the projections, and of targets that are drawn.
        parameters: shell patterns of parameters' names, such as ``fc.*``; for networks.

    Raises:
        UserError: an unknown arm, group or variable, no finished chain, patterns that match nothing or too many
            numbers, or the extra is not installed.
    """
    from_dict = _from_dict()
    of_arm, chains = chains_of(comparison, arm, group)
    dims: dict[str, list[str]] = {"projection": ["direction"], "log_p_label": ["example"], "label": ["example"]}
    dims |= {"log_p": ["example"], "target": ["example"]}
    if task.low_dimensional:
        every = "be left out for a density, whose posterior holds every coordinate"
        require(parameters is None, "parameters", parameters, every)
        made, used = _density(root, task, chains, variable)
        lanes = ["repeat"] if chains[0].lanes > 1 else []
        dims |= {v.name: [*lanes, *v.dims] for v in task.variables} or {variable: [*lanes, "coordinate"]}
        dims["lp"] = lanes
        coords: dict[str, Any] = {"repeat": np.arange(chains[0].lanes) + group * chains[0].lanes} if lanes else {}
    else:
        require(selection is not None, "selection", selection, "be given for a network: its samples")
        assert selection is not None
        if parameters is None:
            made, used = _network(selection, chains, variable, predictions, evaluation, seed)
        else:
            patterns = [parameters] if isinstance(parameters, str) else list(parameters)
            made, used = _parameters(selection, chains, variable, patterns, predictions, evaluation, seed)
        coords = {}
    attributes = {
        "created_by": f"raychains {raychains.__version__}",
        "task": comparison.task,
        "task_digest": digest_of(comparison.task_spec.to_json()),
        "split": comparison.split,
        "arm": of_arm.name,
        "group": group,
        "variable": variable,
        "chains": " ".join(spec.digest for spec in used),
    }
    found: DataTree = from_dict({k: v for k, v in made.items() if v}, dims=dims, coords=coords, attrs={"/": attributes})
    return found


def of_run(
    root: Storage,
    comparison: Comparison,
    task: Task,
    arm: str | None = None,
    group: int = 0,
    *,
    dropped: Collection[str] = (),
    predict: bool = False,
    parameters: str | Sequence[str] | None = None,
    **settings: Any,
) -> DataTree:
    """Return `to_arviz` of a stored run: of networks with predictions on the run's split where they are kept.

    Args:
        root, comparison, task, arm, group: as for `to_arviz`.
        dropped: digests of chains that the run was evaluated without.
        predict: make predictions that are not kept here, sample by sample.
        parameters: as for `to_arviz`.
        settings: of `to_arviz`: variable, seed.

    Raises:
        UserError: as `to_arviz`, or an unfinished chain of a network.
    """
    settings["parameters"] = parameters
    if task.low_dimensional:
        return to_arviz(root, comparison, task, arm, group, **settings)
    selection = select(root, comparison, arm, group, dropped=dropped)
    if not family_of(task).one_label and parameters is None:
        return to_arviz(root, comparison, task, arm, group, selection=selection, **settings)
    split = task.splits()[comparison.split]
    kept = Predictions(root, comparison.task_spec, split.fingerprint, split.shards)
    there = predict or all(root.exists(kept.name(record.sha256)) for _, record in selection.records)
    predicted = predictions_of(root, split, selection.records) if there else None
    return to_arviz(
        root, comparison, task, arm, group, selection=selection, predictions=predicted, evaluation=split, **settings
    )


def _from_dict() -> Any:
    try:
        from arviz_base import from_dict
    except ImportError:
        raise UserError(
            "arviz export needs the extra 'arviz', which is not installed: pip install 'raychains[arviz]'"
        ) from None
    with contextlib.suppress(ImportError), warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # arviz-plots 0.8 expects this module to be loaded, which matplotlib 3.11 leaves out
        importlib.import_module("matplotlib.style.core")
    return from_dict


def _density(root: Storage, task: Task, chains: Sequence[ChainSpec], variable: str) -> tuple[Groups, list[ChainSpec]]:
    used = [spec for _, spec in finished(root, chains)]
    known = variables_of(root, used[0])
    if variable not in known:
        raise unknown_name("variable", variable, known)
    drawn = [read(root, spec, variable) for spec in used]
    least = min(len(d.values) for d in drawn)
    values = np.stack([d.values[len(d.values) - least :] for d in drawn])
    stats: dict[str, Any] = _settings(used[0], np.stack([d.step[len(d.step) - least :] for d in drawn]))
    if variable == THETA:
        potential = target_of(task, chains[0]).potential(values.reshape(-1, values.shape[-1]))
        if potential is not None:
            stats["lp"] = -potential[0].reshape(values.shape[:3])
    if chains[0].lanes == 1:
        values = values[:, :, 0]
        stats |= {"lp": stats["lp"][:, :, 0]} if "lp" in stats else {}
    return {"posterior": _named(values, task.variables) or {variable: values}, "sample_stats": stats}, used


def _named(values: Array, variables: Sequence[Variable]) -> dict[str, Array]:
    """Return draws [..., dim] as named arrays [..., *shape]."""
    parts = np.split(values, np.cumsum([v.size for v in variables])[:-1], axis=-1) if variables else []
    return {v.name: part.reshape(*values.shape[:-1], *v.shape) for v, part in zip(variables, parts, strict=True)}


def _settings(spec: ChainSpec, step: Array) -> dict[str, Any]:
    """The schedule's values at the draws kept after ``step`` [chains, draws], each of that shape."""
    schedule = schedules.build(spec.schedule)
    unique, inverse = np.unique(step, return_inverse=True)
    values = [schedule.at(int(k)) for k in unique]
    columns = {n: np.array([getattr(v, n) for v in values]) for n in ("lr", "temperature", "cycle", "stage")}
    return {"step": step, **{n: v[inverse].reshape(step.shape) for n, v in columns.items()}}


def _network(
    selection: Selection,
    chains: Sequence[ChainSpec],
    variable: str,
    predictions: Iterable[Array] | None,
    evaluation: Evaluation | None,
    seed: int,
) -> tuple[Groups, list[ChainSpec]]:
    likelihoods = _LogLikelihoods(evaluation)
    read = None if predictions is None else likelihoods.read(predictions)
    networks = of_network(selection, chains, predictions=read, evaluation=evaluation, seed=seed)
    found = {f.variable: f for f in networks}
    if variable not in found:
        raise unknown_name("variable", variable, found)
    followed = found[variable]
    values = {name: v[..., 0] for name, v in followed.values.items()}
    along = [v for name, v in values.items() if name.startswith("projection ")]
    posterior: dict[str, Any] = {"norm": values["norm"], "projection": np.stack(along, axis=-1)}
    renamed = {"p_label": "mean p(label)", "entropy": "mean entropy"}
    posterior |= {new: values[old] for new, old in renamed.items() if old in values}
    used = [chains[i] for i in followed.chains]
    order = _order(selection, used, variable, followed.draws)
    stats = _stats([[selection.records[i][1].meta for i in row] for row in order])
    groups: Groups = {"posterior": posterior, "sample_stats": stats}
    if likelihoods.labels is not None:
        groups["log_likelihood"] = {"log_p_label": np.array([[likelihoods.values[i] for i in row] for row in order])}
        groups["observed_data"] = {"label": likelihoods.labels}
    return groups, used


def _stats(metas: Sequence[Sequence[SampleMeta]]) -> dict[str, Any]:
    stats: dict[str, Any] = {
        field: np.array([[getattr(meta, field) for meta in row] for row in metas])
        for field in ("lr", "temperature", "cycle", "epoch", "step", "stage")
    }
    if all(meta.train_nll is not None for row in metas for meta in row):
        stats["train_nll"] = np.array([[meta.train_nll for meta in row] for row in metas])
    return stats


class _LogLikelihoods:
    """log p(label) of every example under each sample, collected while predictions are read."""

    def __init__(self, evaluation: Evaluation | None) -> None:
        self._evaluation = evaluation
        self.labels: Array | None = None
        self.values: list[Array] = []

    def read(self, predictions: Iterable[Array]) -> Iterator[Array]:
        for i, block in enumerate(predictions):
            if i == 0 and self._evaluation is not None:
                self.labels = labels_of(self._evaluation, block)
            if self.labels is not None:
                of_label = block[np.arange(len(self.labels)), self.labels].astype(np.float64)
                self.values.append(np.maximum(of_label, np.log(np.finfo(np.float64).tiny)))
            yield block


def _order(selection: Selection, used: Sequence[ChainSpec], variable: str, draws: int) -> list[list[int]]:
    """Indices in the selection of each chain's last ``draws`` samples of a variable, in their order."""
    order = []
    for spec in used:
        mine = [
            (record.meta.index, i)
            for i, (owner, record) in enumerate(selection.records)
            if owner.digest == spec.digest and record.meta.variable == variable
        ]
        order.append([i for _, i in sorted(mine)][len(mine) - draws :])
    return order


def _parameters(
    selection: Selection,
    chains: Sequence[ChainSpec],
    variable: str,
    patterns: Sequence[str],
    predictions: Iterable[Array] | None,
    evaluation: Evaluation | None,
    seed: int,
) -> tuple[Groups, list[ChainSpec]]:
    """The draws of the parameters that patterns name, and what their samples predict."""
    counts = Counter(spec.digest for spec, record in selection.records if record.meta.variable == variable)
    if not counts:
        known = {record.meta.variable for _, record in selection.records}
        raise unknown_name("variable", variable, known)
    used = [spec for spec in chains if spec.digest in counts]
    order = _order(selection, used, variable, min(counts.values()))
    chosen: list[str] = []

    def parameters(_: int, tensors: Mapping[str, Tensor]) -> dict[str, Array]:
        if not chosen:
            shapes = {name: (len(used), len(order[0]), *t.shape) for name, t in tensors.items()}
            chosen.extend(_matching(patterns, shapes))
        return {name: tensors[name].numpy() for name in chosen}

    posterior = _side_by_side(order, selection.stored(), parameters)
    stats = _stats([[selection.records[i][1].meta for i in row] for row in order])
    groups: Groups = {"posterior": {**posterior}, "sample_stats": stats}
    if predictions is not None and evaluation is not None:
        groups |= _predictive(predictions, evaluation, order, family_of(selection.task), seed)
    return groups, used


def _side_by_side(
    order: Sequence[Sequence[int]], samples: Iterable[Item], read: Callable[[int, Item], Mapping[Key, Array]]
) -> dict[Key, Array]:
    """Return what is read of each sample, given its index in the ``order`` [chains, draws], as arrays [chains, draws,
    …]."""
    place = {i: (c, d) for c, row in enumerate(order) for d, i in enumerate(row)}
    found: dict[Key, Array] = {}
    for i, sample in enumerate(samples):
        for key, values in read(i, sample).items() if i in place else ():
            if key not in found:
                found[key] = np.empty((len(order), len(order[0]), *values.shape), values.dtype)
            found[key][place[i]] = values
    return found


def _matching(patterns: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Return the names that any of the patterns matches.

    Raises:
        UserError: a pattern matches none, or all draws of those that match are too many numbers.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in shapes):
            hint = near_miss(pattern, shapes, share=0.5)
            raise UserError(
                f"parameters must match names of the samples' tensors ({some(shapes)}), got {pattern!r}{hint}"
            )
    chosen = [name for name in shapes if any(fnmatchcase(name, pattern) for pattern in patterns)]
    require(len(chosen) > 0, "parameters", list(patterns), f"match some of {', '.join(sorted(shapes))}")
    count = sum(int(np.prod(shapes[name])) for name in chosen)
    allowed = f"match at most {MOST:,} numbers in all draws: these are {count:,}, about {4e-9 * count:,.1f} GB"
    require(count <= MOST, "parameters", list(patterns), allowed)
    return chosen


def _predictive(
    predictions: Iterable[Array], evaluation: Evaluation, order: Sequence[Sequence[int]], family: Family, seed: int
) -> Groups:
    """log p(target) of every example under each sample, a target drawn under each, and the targets themselves."""
    observed: dict[str, Any] = {}

    def predicted(i: int, block: Array) -> dict[tuple[str, str], Array]:
        parts = [block[evaluation.range_of(shard)] for shard in range(evaluation.shards)]
        rows = gather([evaluation.reduce([part], shard) for shard, part in enumerate(parts)])
        found: dict[tuple[str, str], Array] = {}
        found |= {("log_likelihood", name): rows[name] for name in ("log_p_label", "log_p") if name in rows}
        for target in [name for name in ("label", "target") if name in rows][:1]:
            observed[target] = rows[target]
            if (drawn := family.drawn(block, np.random.default_rng([seed, i]))) is not None:
                found["posterior_predictive", target] = drawn.reshape(rows[target].shape)
        return found

    found = _side_by_side(order, predictions, predicted)
    groups: Groups = {"observed_data": observed}
    for (group, name), values in found.items():
        groups.setdefault(group, {})[name] = values
    return groups
