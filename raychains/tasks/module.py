"""The task of any network and data: `Task.from_module`."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import priors
from raychains.core import tree
from raychains.core.errors import UserError, format_error, require, shown
from raychains.core.rng import seeded
from raychains.core.sample import tensors_sha256
from raychains.core.tree import Tree
from raychains.core.validation import integer, is_int
from raychains.data.source import Collate, Source
from raychains.evaluation.evaluation import Evaluation, Metric
from raychains.tasks import user_model
from raychains.tasks.base import PredictiveTask, Task
from raychains.tasks.examples import check_apart, check_loss, check_mean, varied
from raychains.tasks.fingerprint import check_own_name, checked_defaults, fingerprint, model_parts
from raychains.tasks.likelihoods import Likelihood, likelihood
from raychains.tasks.splits import LazySplits, divide, divide_groups, sizes
from raychains.tasks.user_dataset import UserDataset

ARGUMENTS = {"train": "train_set", "test": "test_set", "val": "val"}
"""The argument of each split."""
TRIED = 4
"""Examples of each set on which a model is tried before anything starts."""
LARGEST = 10_000_000
"""Outputs on which a loss is tried: of images that are segmented, say, fewer examples than `VARIED`."""
VARIED = 16
"""Training examples, with targets as different as possible, on which network and loss are tried together and one by
one."""


class FromModule(PredictiveTask):
    """The posterior of a network's parameters given a data set: ``rc.Task.from_module(model_fn, train_set, test_set)``.

    The posterior is ∝ exp(−N·loss(θ)) · prior(θ) with the mean loss over the N training examples; the prior is
    ``prior``, else the sampler's weight decay λ, N(0, 1/(Nλ)) on every parameter.

    The object travels to workers and evaluators by Ray's own pickling, lambdas and classes of a script included, and
    never into the store: a run's plan holds its name, its version and hashes of the data, of the model's layout and of
    the parameters that ``model_fn`` draws at a fixed seed. Continuing a run needs the same object. A function that
    makes the task, named by import path, needs none: every process calls it.

    Args:
        model_fn: builds a new network; random numbers must come from the global generators of torch, Python or NumPy,
            which are seeded around it: chains start at different seeds. All that its forward pass keeps must be in
            buffers.
        train_set: what is learned from: (inputs [n, …], targets [n, …]) as tensors or arrays, or a map-style dataset of
            such pairs whose examples are functions of their index. Inputs may be a dict, a tuple or a nest of both: the
            model is called as ``model(**inputs)`` or ``model(*inputs)``. A dict with ``labels`` is such a pair, too.
        test_set: the same for the split ``test``; without one, runs are evaluated on ``val``, else on the training
            examples.
        val: the same for a split ``val``, on which sweeps choose and samples are weighted; default none.
        val_split: instead of ``val``: the share (below 1) or number of the training examples that is held out as that
            split, each class's share kept where targets are classes. Which ones depends on their places in the set and
            the seed.
        split_seed: of that choice.
        groups: a number or a text for each training example, [n]: whole groups are held out then, such as all rows of a
            patient, a day or a site.
        loss: ``"cross_entropy"`` (logits [n, classes], integer labels [n]), ``"tokens"`` (a label per position: logits
            [n, positions …, classes], labels [n, positions …]), ``"pixels"`` (the same with logits [n, classes,
            positions …]; of both the label -100 is none, and log p of an example is the sum over its labels),
            ``"gaussian"`` (regression: outputs and targets
            [n] or [n, k]), ``"heteroscedastic"`` (regression: outputs [n, 2], the mean and what gives σ = softplus +
            1e-6 at each input; targets [n] or [n, 1]), ``"bernoulli"`` (labels of 0 and 1: logits and targets [n,
            labels]), ``"poisson"`` (counts: outputs log μ and targets [n, k]), ``"negative-binomial"``, ``"normal"`` or
            ``"student-t"`` (outputs [n, 2k]), a `raychains.tasks.likelihoods.Likelihood` (times to an event:
            ``DiscreteHazard(edges)``), or a function of (outputs, targets) that returns the mean over the batch of −log
            p(y | x, θ). Of a function only the NLL is measured, the loss of a batch must be the mean of its examples'
            own, and its code is not part of the identity: give another ``version`` with another one.
        noise: σ of the Gaussian likelihood, or ``"learned"``; default 1. With it the mean loss is
            (1/n) Σ_i ‖y_i − f(x_i)‖²/(2σ²) + k·log σ + (k/2)·log 2π. Learned, log σ is one more parameter of the model,
            ``log_noise`` of shape [1], which starts at 0 (σ = 1) with the prior of all others: standardise the targets.
        name: what the run is called, 1 to 60 letters, digits, spaces, dots or dashes.
        version: part of the identity, for what hashes do not see: the forward pass and a loss's code.
        resident: whether the training set is read into memory; None decides by size: at most a quarter of the machine's
            memory. A streamed set gives the same batches, read ahead of the chain. The test set is read as it is asked
            for.
        metrics: further metrics, each a `raychains.Metric` with a function ``of(rows)`` of a predictive's rows on a
            split: columns of one entry per example, named in `reduce_classification` and `reduce_regression` of
            `raychains.evaluation`. Not part of the identity: they change no sample.
        defaults: values of options that are left out of a run, as in ``{"epochs": 40, "lr": 0.05}``.
        prior: of the model's parameters where a run states neither ``prior`` nor ``weight_decay``: ``"gaussian:STD"``,
            ``"fan-in:GAIN"``, ``"laplace:SCALE"``, ``"student-t:DF,SCALE"``, a prior of `raychains.priors`, or a dict
            from patterns of parameters' names to these, as in ``{"*.weight": "fan-in", "*.bias": "gaussian:1"}``;
            default a weight decay, of pSGLD 1/N, which is N(0, 1), and of other samplers 1e-4.
        collate_fn: makes a batch of a list of examples where these have several shapes, as in
            `torch.utils.data.DataLoader`: it returns inputs and targets, or a dict with ``labels``, of tensors [n, …].
            Training examples are in memory or streamed as without it, and a batch is made when it is needed.
        output: what the likelihood takes of what the model returns, where that is no tensor: a name or a position.
            Default ``logits``.

    A dataset with a text attribute ``fingerprint`` is identified by that and not read for a hash.

    Raises:
        UserError: a model or data that do not fit one another, or a setting out of range.
    """

    untuned = "cpsgld"

    def __init__(
        self,
        model_fn: Callable[[], nn.Module],
        train_set: Any,
        test_set: Any = None,
        loss: str | Likelihood | Callable[[Tensor, Tensor], Tensor] = "cross_entropy",
        *,
        noise: float | str | None = None,
        val: Any = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        groups: Any = None,
        name: str = "own",
        version: str | int = "1",
        resident: bool | None = None,
        metrics: Sequence[Metric] = (),
        defaults: Mapping[str, Any] | None = None,
        prior: Any = None,
        collate_fn: Collate | None = None,
        output: str | int | None = None,
    ) -> None:
        check_own_name(name, version)
        ok = callable(model_fn) and not isinstance(model_fn, nn.Module)
        allowed = "be a function that builds a new model at each call, without arguments"
        require(ok, "model_fn", type(model_fn).__name__, allowed)
        self.name, self.version, self._model_fn = name, str(version), model_fn
        self.likelihood = likelihood(loss, noise)
        self.predicts, self.noise = self.likelihood.predicts, self.likelihood.noise
        ok = isinstance(output, str | None) or is_int(output)
        require(ok, "output", output, "be a name or a position in what the model returns")
        given = {"train": train_set, "test": test_set, "val": val}
        self._sets = {
            split: UserDataset(data, ARGUMENTS[split], resident, collate_fn)
            for split, data in given.items()
            if data is not None or split == "train"
        }
        self.output, self.padded = output, collate_fn is not None
        self._adapted = not isinstance(self._train.first(1)[0], Tensor) or output is not None
        self.num_data = len(self._train)
        self._groups = self._read_groups(groups)
        if prior is not None:
            defaults = {**(defaults or {}), "prior": priors.as_texts(prior)}
        self.defaults = checked_defaults(defaults)
        self._metrics: tuple[Metric, ...] = ()
        model, other = self._checked_models()
        if not self._adapted and not self._returns_tensor(model):
            self._adapted = True
            model, other = (user_model.adapt(each, output) for each in (model, other))
        self._classes = self._try(model)
        try:
            self.data_notes = self._check_examples(model, other)
        except UserError:
            raise
        except Exception as error:
            raise UserError(
                "model_fn or loss fails on some of the training examples, or on parts of a batch: "
                f"{format_error(error, kind=True)}"
            ) from None
        self._metrics = self._checked_metrics(metrics, model)
        self._parts: dict[str, Any] = {
            "version": self.version,
            "likelihood": self.likelihood.name,
            **{split: data.fingerprint for split, data in self._sets.items()},
            **({} if output is None else {"output": output}),
            **model_parts(model),
        }
        self.fingerprint = fingerprint(self._parts)
        self._held_out: dict[str, Any] = {}
        self._hold_out(val_split, split_seed)

    def settings(self) -> dict[str, Any]:
        """Return what a plan shows of the task, which cannot be rebuilt from it."""
        return {"name": self.name, "version": self.version, "loss": self.likelihood.name, **self._held_out}

    def holding_out(self, val_split: float, split_seed: int = 0) -> Task:
        made = copy.copy(self)
        made._hold_out(val_split, split_seed)
        if not made._held_out or made._held_out == self._held_out:
            return self
        if self.origin is not None:
            path, settings = self.origin
            seed = {"split_seed": split_seed} if split_seed else {}
            made.origin = (path, {**settings, "val_split": made._held_out["val_split"], **seed})
        return made

    def _hold_out(self, val_split: float, split_seed: int) -> None:
        integer("split_seed", split_seed)
        chosen = sizes(len(self._train), None, val_split)
        if not chosen.val:
            return
        has = "holds out a part already" if self._held_out else "has validation data of its own"
        require("val" not in self._sets, "val_split", val_split, f"be left out: task {self.name!r} {has}")
        classes = self.predicts == "classes"
        if classes and not self._train.read:
            raise UserError(
                f"val_split must be left out for a streamed train_set that states its fingerprint, got {val_split}: "
                "its labels are not known without reading it; give Task.from_module(…, val=…)"
            )
        n = len(self._train)
        labels = self._train.targets.long().numpy() if classes else np.zeros(n, dtype=np.int64)
        if self._groups is None:
            parts = divide(np.arange(n), labels, chosen, split_seed)
        else:
            parts = divide_groups(self._groups, chosen, split_seed)
        name = f"{len(parts.val)} of {n}, seed {split_seed}{self._of_groups}"
        whole = self._train
        held = {"train": whole.part(parts.train, f"train/{name}"), "val": whole.part(parts.val, f"val/{name}")}
        self._sets = {**self._sets, **held}
        self.num_data = len(self._train)
        self._held_out = {"val_split": chosen.val, "split_seed": split_seed}
        self._parts = {**self._parts, "split": name}
        self.fingerprint = fingerprint(self._parts)

    def _read_groups(self, given: Any) -> np.ndarray[Any, Any] | None:
        """Return the group of each training example as an integer, [n]."""
        if given is None:
            return None
        found = np.asarray(given)
        ok = found.ndim == 1 and len(found) == self.num_data and found.dtype.kind in "biuUSO"
        require(
            ok, "groups", f"shape {list(found.shape)}", f"be an integer or a text for each of {self.num_data} examples"
        )
        names, numbers = np.unique(found.astype(str), return_inverse=True)
        require(len(names) > 1, "groups", names[0], "be two different ones or more: a whole group is held out")
        return numbers

    @property
    def _of_groups(self) -> str:
        """Return what the identity of a part says of its groups."""
        return "" if self._groups is None else f", groups {hashlib.sha256(self._groups.tobytes()).hexdigest()[:16]}"

    @property
    def _train(self) -> UserDataset:
        return self._sets["train"]

    @property
    def streamed(self) -> bool:
        """True where the training set is read batch by batch instead of kept in memory."""
        return self._train.streamed

    @property
    def source(self) -> Source:  # type: ignore[override]
        return self._train.source

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        with seeded(seed):
            model = self.likelihood.extend(user_model.check(user_model.without_extra_state(self._model_fn())))
            return user_model.adapt(model, self.output) if self._adapted else model

    def splits(self) -> Mapping[str, Evaluation]:
        order = [split for split in ("test", "train", "val") if split in self._sets]
        return LazySplits({split: partial(self._split, self._sets[split]) for split in order})

    def _split(self, data: UserDataset) -> Evaluation:
        made = self.likelihood.evaluation(self.build_model(seed=0, lanes=1), data, self._classes)
        made.metrics = (*made.metrics, *self._metrics)  # type: ignore[misc]  # this split's alone
        return made

    def _checked_metrics(self, given: Any, model: nn.Module) -> tuple[Metric, ...]:
        """Return the user's metrics, each tried on what the model of seed 0 predicts of the first inputs of a split."""
        metrics = tuple(given) if isinstance(given, list | tuple) else (given,)
        if not metrics:
            return ()
        split = self._split(next(self._sets[name] for name in ("test", "val", "train") if name in self._sets))
        rows = split.reduce([split.predict(model.state_dict(), 0)], 0).rows
        names = [metric.name for metric in split.metrics]
        for metric in metrics:
            ok = isinstance(metric, Metric) and callable(metric.of)
            require(ok, "metrics", metric, "be raychains.Metric objects with a function of=")
            require(
                metric.name not in names, "metrics", metric.name, f"have names of their own, not of {', '.join(names)}"
            )
            names.append(metric.name)
            try:
                float(metric.of(rows))
            except Exception as error:
                raise UserError(
                    f"metrics: {metric.name} must return a number of the rows {', '.join(rows)}, got "
                    f"{format_error(error, kind=True)}"
                ) from None
        return metrics

    def _checked_models(self) -> tuple[nn.Module, nn.Module]:
        """Return two models of seed 0, built to see that a seed determines them."""
        models = []
        for _ in range(2):
            try:
                models.append(self.build_model(seed=0, lanes=1))
            except UserError:
                raise
            except Exception as error:
                raise UserError(f"model_fn raised {format_error(error, kind=True)}") from None
        first, second = models
        if first is second or {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}:
            raise UserError("model_fn must build a new model at each call, got the same parameters twice")
        if not any(p.requires_grad for p in first.parameters()):
            raise UserError("model_fn must build a model with parameters that require gradients, got none")
        states = [m.state_dict() for m in models]
        for name, value in states[0].items():
            if name not in states[1] or tensors_sha256({"": value}) != tensors_sha256({"": states[1][name]}):
                raise UserError(
                    "model_fn must draw its initial parameters from torch, random or numpy.random alone, got two "
                    f"values of {name!r} at one seed"
                )
        return first, second

    def _run(self, model: nn.Module, inputs: Tree) -> Any:
        """Return what a model in evaluation mode returns for inputs as they are stored."""
        with torch.no_grad(), seeded(0):
            return model.eval()(self.network_inputs(inputs, next(model.parameters()).dtype))

    def _returns_tensor(self, model: nn.Module) -> bool:
        try:
            return isinstance(self._run(model, self._train.first(1)[0]), Tensor)
        except Exception:  # `_try` says so
            return True

    def _check_examples(self, model: nn.Module, other: nn.Module) -> list[str]:
        """Refuse a network or a loss in which examples do not count by themselves; return lines for the plan.

        ``other`` is left in another precision.
        """
        train = self._train
        some = varied(train.targets if train.read else torch.zeros(len(train)), VARIED)
        inputs, targets = train.some(some)
        self.labels_per_example = self.likelihood.labels_per_example(train.targets if train.read else targets)
        alone = [train.some([i])[0] for i in some[:TRIED]] if self.padded else []
        check_apart(other, self.network_inputs, tree.at(inputs, slice(TRIED)), alone=alone)
        outputs = self._run(model, tree.mapped(torch.clone, inputs))
        with seeded(0):
            n = max(TRIED, LARGEST // max(1, outputs[0].numel()))
            outputs, targets = outputs[:n], targets[:n]
            if not bool(self.likelihood.loss(model, outputs.clone(), targets.clone()).isfinite()):
                self._check_finite(model, train, "train_set", some[:n])
            check_loss(self.likelihood.loss(model, outputs.clone(), targets.clone()), model)
            k = check_mean(self.likelihood, model, outputs, targets)
        model.train()
        how = f"the loss averages over the {k:,} entries of an example: temperature T is {k:,}·T for the sum over them"
        return [how] if k > 1 else []

    def _check_finite(self, model: nn.Module, data: UserDataset, name: str, numbers: Sequence[int]) -> None:
        """Refuse examples of a set, by their numbers, whose loss is no number; those with NaN may be of use to models
        and losses."""
        for i in numbers:
            inputs, targets = data.some([i])
            outputs = self._run(model, inputs)
            with torch.no_grad(), seeded(0):
                loss = float(self.likelihood.loss(model, outputs, targets))
            if not math.isfinite(loss):
                why = f"whose target is {shown(targets[0].tolist())}"
                if i in data.not_finite:
                    why = "which has NaN or infinity: neither model nor loss takes it for a missing value"
                raise UserError(f"{name} must hold examples with a finite loss, got {loss} at index {i}, {why}")

    def _try(self, model: nn.Module) -> int:
        """Run the model on the first examples of all sets and return the number of its outputs."""
        width = 0
        for split, data in self._sets.items():
            name = ARGUMENTS[split]
            inputs, targets = data.first(TRIED)
            try:
                outputs = self._run(model, inputs)
            except Exception as error:
                raise UserError(
                    f"model_fn: the model fails on the first inputs of {name}: {format_error(error, kind=True)}"
                ) from None
            if not isinstance(outputs, Tensor) or outputs.ndim < 1 or len(outputs) != len(targets):
                shape = list(outputs.shape) if isinstance(outputs, Tensor) else f"a {type(outputs).__name__}"
                raise UserError(
                    f"model_fn: the model must give a tensor [n, …] for inputs [n, …], got {shape} for {len(targets)}"
                    f"{'' if self.output is None else f' as its {self.output!r}, which `output` names'}"
                )
            try:
                self.likelihood.check(outputs, targets)
            except UserError as error:
                raise UserError(f"{name}: {error}") from None
            if data.read:
                self.likelihood.check_all(outputs, data.targets, name)
            self._check_finite(model, data, name, data.not_finite[:TRIED])
            width = self.likelihood.width(outputs)
        return width
