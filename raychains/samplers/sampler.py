"""The base of all samplers: a `torch.optim.Optimizer` with its own generators, N and a temperature; and
`MethodPreset`."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from raychains.core.errors import UserError, format_error, shown
from raychains.core.sample import THETA
from raychains.core.spec import EarlyStop
from raychains.core.user_code import is_ours, own_kind
from raychains.core.validation import at_least_0, integer, positive_int
from raychains.samplers.columns import Number, add_
from raychains.samplers.groups import (
    MISSING_GRAD,
    called_from,
    check_memory,
    check_names,
    check_params,
    check_settings,
    check_unsharded,
    listed,
)
from raychains.samplers.noise import Noise
from raychains.samplers.settings import Declaring, construct, generated, setting, unless_none

SEEDS = -(2**63), 2**64 - 1
"""Least and largest seed of torch's generators."""
CHECKPOINT = "torch.distributed.checkpoint"
"""The package of torch that restores only those entries of an optimizer's state that it knows."""


@dataclass(frozen=True, kw_only=True)
class MethodPreset:
    """The schedule and settings that a paper runs a sampler with; settings that the user passes take precedence."""

    kind: str = ""
    """The sampler's; filled in by the registry (`raychains.samplers.METHODS`)."""
    schedule: str
    label: str
    """The name in tables, with the schedule: ``cSGLD``."""
    cyclical_label: str | None = None
    """The same under a cyclical schedule, where that is not the method's own and has a name."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values of options, by the names of `raychains.core.config.Sampling`."""
    tuned: float = 0.0
    """Share of the run that tunes the sampler, which has a setting ``tune``; draws of these steps are not kept."""
    full_batch: bool = False
    """True if every step reads all training data, unless the user passes a batch size."""
    fixed: bool = False
    """True if the schedule belongs to the name: ``csgld`` is SGLD under a cyclical step size and nothing else. Of
    chains that stop early it is the one that comes by itself."""
    draws: int | None = None
    """Draws that a network's chain keeps at the most, evenly spaced, unless the user passes a thinning; None keeps
    all."""
    last_epoch_measures: bool = False
    """True if the burn-in is all epochs but the last, unless the user passes one."""
    early_stop: EarlyStop | None = None
    """When an optimiser's chains stop: the loss on held-out training examples grows, and the best weights are the only
    sample; None runs every step."""

    def takes(self, schedule: str) -> bool:
        """Return whether it can have another schedule than its own."""
        stops_early = self.early_stop is not None and schedule != "cyclical"  # cycles keep more than the best weights
        return schedule == self.schedule or not self.fixed or stops_early

    def label_under(self, schedule: str) -> str:
        """The name in tables under a schedule: ``cSGLD``, ``Snapshot-SGD``, ``SAM decreasing``."""
        if schedule == self.schedule:
            return self.label
        if schedule == "cyclical" and self.cyclical_label is not None:
            return self.cyclical_label
        return f"{self.label} {schedule.rpartition(':')[2]}"


Presets = Mapping[str, MethodPreset]
Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


def _uncompiled(method: Callable[..., Any], whole: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a method that `torch.compile` leaves as it is: it would trace NumPy's part of the noise, which gives other
    numbers.

    ``whole`` stands in for a generator where the compiler is loaded, since that leaves out calls alone. It is loaded by
    those who use it: see `Sampler._of_torch`.
    """
    hidden = torch._disable_dynamo(whole or method)

    @wraps(method)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (hidden if "torch._dynamo" in sys.modules else method)(*args, **kwargs)

    return called


def _checked_first(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `step` that begins with a check of settings which the loop has changed."""

    @wraps(step)
    def checked(self: Sampler, *args: Any, **kwargs: Any) -> Any:
        self._check_changes()
        return step(self, *args, **kwargs)

    return _uncompiled(checked)


class Sampler(Declaring):
    """Base of all samplers; usable in any training loop and with any ``torch.optim.lr_scheduler``.

    The loss that is differentiated is the *mean* minibatch negative log-likelihood. ``num_data`` (N) and
    ``temperature`` (T) make an optimiser of ``lr`` and ``weight_decay`` a sampler of exp(−U/T) with
    U(θ) = N·(loss + ½·weight_decay·‖θ‖²).

    The noise's positions and counters are in the entry ``"sampler"`` of `state_dict`, because torch casts everything in
    ``state[p]`` to the parameter's dtype on load.
    """

    params: Params = setting("parameters or parameter groups, as for any torch optimizer.", group=False, kw_only=False)
    lr: float = setting("step size on the mean-loss scale.", check=at_least_0)
    num_data: int = setting(
        "N, the number of training data.",
        group=False,
        check=partial(positive_int, why=": the number of training data, N"),
    )
    temperature: float = setting("T; 1 samples the posterior.", default=1.0, check=at_least_0)
    weight_decay: float = setting("strength λ of a Gaussian prior N(0, 1/(Nλ)).", default=0.0, check=at_least_0)
    seed: int | None = setting(
        "of the noise; drawn from torch's global generator when left out.",
        default=None,
        group=False,
        check=unless_none(partial(integer, least=SEEDS[0], most=SEEDS[1])),
    )
    lanes: int = setting(
        "independent chains stacked on axis 0 of every parameter.", default=1, group=False, check=positive_int
    )

    kind: ClassVar[str]
    """The name in specs; a user's class is named by its import path."""
    revision: ClassVar[int] = 1
    """Raised by a change that alters samples."""
    gradients_per_step: ClassVar[int] = 1
    """Gradient evaluations that one step spends. Methods with two take a closure, which re-evaluates one minibatch."""
    parts = 1
    """Sub-batches that a step's minibatch is divided into, each with a closure of its own."""
    own_options: ClassVar[Set[str]] = frozenset({"params", "lr", "temperature", "seed", "lanes"})
    """Arguments that are options of the chain itself, such as ``lr``, or no settings."""
    omitted_defaults: ClassVar[Mapping[str, Any]] = {}
    """Settings that are left out of specs at this value: they were added after samples had been stored."""
    statistics_fit: ClassVar[bool] = True
    """True if draws are the very parameters that gradients were taken at, so that BatchNorm's running statistics fit
    them."""
    missing_grad: ClassVar[str] = "zero"
    """What a step does with a parameter that has no gradient, where its group does not say it: ``zero``, since prior
    and noise act on it in every step; ``skip`` leaves it as it is, for optimisers."""
    noisy_counterpart: ClassVar[str | None] = None
    """The sampler that injects noise, for an optimiser, whose temperature must stay 0."""
    presets: ClassVar[Presets] = {}
    """The methods that run this sampler, by the names that users give."""
    elementwise: ClassVar[Set[str]] = frozenset()
    """Settings in which the chains of a pack may differ: those that are declared as columns."""
    noises: ClassVar[int] = 1
    """Times that a step of a pack draws noise for every parameter."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_kind(cls)
        cls.elementwise = frozenset(name for name, one in cls._settings.items() if one.column)
        written = is_ours(cls.__init__.__module__) and not generated(cls)
        if "kind" in vars(cls) and "__init__" not in vars(cls) and (written or "_settings" in vars(cls)):
            construct(cls)
        if "step" in vars(cls):
            cls.step = _checked_first(cls.step)  # type: ignore[method-assign]
        if "draws" in vars(cls):
            draws = cls.draws
            cls.draws = _uncompiled(draws, lambda self: iter(list(draws(self))))  # type: ignore[method-assign]

    def __init__(
        self, params: Any, *, num_data: int, temperature: float, seed: int | None, lanes: int = 1, **settings: Any
    ) -> None:
        kind = type(self)
        if kind._update is Sampler._update and kind.apply is Sampler.apply and kind.step is Sampler.step:
            raise UserError(f"sampler {type(self).__name__} must define _update(group, params, grads), its update rule")
        own = {name: settings.pop(name) for name, one in self._settings.items() if not one.group and name in settings}
        for name, value in {**own, "num_data": num_data, "lanes": lanes, "seed": seed}.items():
            if (check := self._settings[name].check) is not None:
                check(name, value)
        if self._whole:
            check_unsharded(type(self).__name__)
        vars(self).update(own, num_data=num_data, lanes=lanes)
        self._built = self._begun = False
        """True once all groups are there, and once a parameter has had a gradient."""
        self._checked: dict[int, dict[str, Any]] = {}
        """The settings of each group that were checked last."""
        # Drawn from torch's global generator, so that torch.manual_seed governs a loop that gives no seed.
        self._noise = Noise(int(torch.randint(2**62, ())) if seed is None else seed)
        super().__init__(listed(params), {**settings, "temperature": temperature})
        check_memory(self.param_groups)
        self._built = True

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if isinstance(param_group, dict) and "params" in param_group:
            given = param_group["params"]
            param_group["params"] = [given] if isinstance(given, Tensor) else listed(given)
        try:
            self._of_torch("add_param_group", param_group)
        except (TypeError, ValueError, AssertionError) as error:  # torch's own checks
            raise UserError(f"params must be tensors that can be optimised, each once: {format_error(error)}") from None
        try:
            check_names(self.param_groups[-1], self.defaults, self.kind, new=True)
            self._check_group(self.param_groups[-1])
            check_params(self.param_groups[-1]["params"], type(self).__name__, self.lanes, whole=self._whole)
            if self._built:
                check_memory(self.param_groups)
        except UserError:
            self.param_groups.pop()
            raise

    @property
    def _whole(self) -> bool:
        """True if every rank must have all parameters: the sampler draws noise, or does not update each number by
        itself."""
        return self.noisy_counterpart is None or not self.elementwise

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuse a parameter group with settings out of range."""
        check_settings(group)
        for name, one in self._settings.items():
            if one.check is not None and name in group:
                one.check(name, group[name])
        if self.noisy_counterpart is not None and group["temperature"] != 0:
            raise UserError(
                f"temperature must be 0 for {self.kind}, got {group['temperature']!r}: it injects no noise; "
                f"{self.noisy_counterpart} does"
            )

    def _check_changes(self) -> None:
        """Refuse settings out of range, and misspelt ones, that the loop has put into a group since the last step."""
        for number, group in enumerate(self.param_groups):
            now, checked = {**group, "params": None}, self._checked.get(number, {})
            if Tensor in map(type, now.values()) or now != checked:
                if now.keys() != checked.keys():
                    check_names(group, self.defaults, self.kind, new=False)
                self._check_group(group)
                self._checked[number] = {**group, "params": None}

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._of_torch("zero_grad", set_to_none)

    def _of_torch(self, method: str, *args: Any) -> Any:
        """Call torch's own method.

        Torch hides these from its compiler, and loads it for that, which takes every process 1.4 s and 150 MB. As long
        as it is not loaded there is nothing to hide them from.
        """
        called = getattr(torch.optim.Optimizer, method)
        if "torch._dynamo" not in sys.modules:
            called = getattr(called, "__wrapped__", called)
        return called(self, *args)

    @_checked_first
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | Sequence[Callable[[], Any]] | None = None) -> Any:
        """One update of every parameter; one without a gradient has the gradient 0, or is left as it is: see
        `missing_grad`.

        Nothing happens before a parameter has had a gradient. A frozen parameter, with ``requires_grad=False``, stays.

        ``closure`` re-evaluates the loss, as in `torch.optim.SGD`; its value is returned. Methods with two gradients
        per step take one, or one per sub-minibatch.

        Raises:
            UserError: a sparse gradient, a list of closures for a method with one gradient per step, or a setting out
                of range.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise UserError(f"step must be given one closure or none for {self.kind}, got {shown(closure)}")
            with torch.enable_grad():
                loss = closure()
        self._begin()
        for group in self.param_groups:
            found = [(p, g) for p in group["params"] if (g := self._gradient(p, group)) is not None]
            if found:
                self._update(group, [p for p, _ in found], [g for _, g in found])
        return loss

    def _begin(self) -> None:
        """Note whether a parameter has had a gradient."""
        self._begun = self._begun or any(p.grad is not None for p in self.parameters())

    def _gradient(self, p: Tensor, group: Mapping[str, Any]) -> Tensor | None:
        """Return a parameter's gradient, or 0 where it is missing and the group does not skip it; None of one that
        stays."""
        if not p.requires_grad and (p.grad is None or isinstance(p, nn.Parameter)):
            return None
        if p.grad is not None:
            return self._dense(p)
        skip = not self._begun or group.get(MISSING_GRAD, self.missing_grad) == "skip"
        return None if skip else torch.zeros_like(p)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """The update rule for one parameter group, under ``no_grad``; by default `apply` with `coefficients`."""
        self.apply(group, self.coefficients(group), params, grads)

    def coefficients(self, group: Mapping[str, Any], update: int = 1) -> tuple[float, ...]:
        """Return the numbers of the ``update``-th update, counted from 1, for `apply`.

        The first is the noise's size: where it is above 0, noise is drawn `noises` times for every parameter.
        """
        raise NotImplementedError

    def apply(
        self, group: Mapping[str, Any], numbers: Sequence[Number], params: list[Tensor], grads: list[Tensor]
    ) -> None:
        """Make the update with the numbers of `coefficients`. In a pack they are columns [rows, 1] and all tensors
        [rows, …].

        Of the group it takes settings that are no columns, and of columns only whether they are 0, as in all rows at
        once.
        """
        raise NotImplementedError

    @classmethod
    def updates_together(cls, settings: Mapping[str, Any]) -> bool:
        """Return whether `apply` moves all chains of a pack at once under these settings of a part; else each moves
        itself."""
        return bool(cls.elementwise)

    def states(self, group: Mapping[str, Any]) -> Mapping[str, float | None]:
        """Return the names and initial values of the states that `state_of` gives each parameter, for packs; None
        begins as its copy."""
        return {}

    def _dense(self, p: Tensor) -> Tensor:
        assert p.grad is not None
        if p.grad.layout is not torch.strided:
            raise UserError(
                f"{type(self).__name__} needs dense gradients, got a {p.grad.layout} one for a parameter of shape "
                f"{tuple(p.shape)}: build the layer without sparse=True"
            )
        return p.grad

    def state_of(self, p: Tensor, name: str, fill: float = 0.0) -> Tensor:
        """Return ``state[p][name]``, made of p's shape on first use; in single precision at least, so that nothing
        small is lost."""
        state = self.state[p]
        found = state.get(name)
        if found is None:
            found = state[name] = torch.full_like(p, fill, dtype=wide(p.dtype))
        elif found.dtype != p.dtype and found.dtype != wide(p.dtype):  # loaded from a sampler of other precision
            found = state[name] = found.to(wide(p.dtype))
        return found

    def reseed(self, seed: int) -> None:
        """Draw all noise from here on from fresh streams of ``seed``; parameters and their states stay as they are."""
        self._noise = Noise(seed)

    def noise_like(self, p: Tensor) -> Tensor:
        """Return fresh standard normal noise of ``p``'s shape, device and dtype, to be read and not altered."""
        return self._noise.like(p)

    def noises_like(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return `noise_like` of each tensor, on a GPU by one call of its generator."""
        return self._noise.all_like(tensors)

    def add_noise(self, tensors: list[Tensor], std: Number) -> None:
        """Add ``std`` times fresh standard normal noise to each tensor in place; nothing at all if ``std`` is 0."""
        if isinstance(std, Tensor):
            add_(tensors, self.noises_like(tensors), std)
        elif std > 0:
            self._noise.add(tensors, std)

    @classmethod
    def variables(cls, settings: Mapping[str, Any]) -> Mapping[str, int]:
        """Return how many draws of each variable one kept step yields, given a part's settings."""
        return {THETA: 1}

    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """Yield the current draws, as `variables` counts them: a name and tensors in the order of the groups'
        parameters."""
        yield THETA, self.parameters()

    def parameters(self) -> list[Tensor]:
        """Return all parameters, group by group."""
        return [p for group in self.param_groups for p in group["params"]]

    def effective_noise_std(self) -> float:
        """Return the standard deviation of the noise that the next step injects into the first group's parameters."""
        return 0.0

    @property
    def wants_objective(self) -> bool:
        """True if the next step compares values of U: its closure returns the function that it differentiates, with the
        task's own prior, and with several lanes one number for each."""
        return False

    def step_length(self) -> Tensor | None:
        """Return the step size that the sampler found itself, the mean over lanes, as `kinetic` does; None where it
        follows ``lr``."""
        return None

    def shown_loss(self, loss: Tensor) -> Tensor:
        """Return what records have as the loss of the step just made, given that of its first evaluation."""
        return loss

    def kinetic(self) -> Tensor | None:
        """Return `kinetic_temperature` as a scalar in double precision where the momenta are: the device is not waited
        for."""
        return None

    def kinetic_temperature(self) -> float | None:
        """Return ⟨p·∇K⟩ over all coordinates: T where the momenta have the law that the sampler is meant to give them.

        None of a sampler without momenta, before its first step, and at temperature 0.
        """
        found = self.kinetic()
        return None if found is None else float(found)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles hold: all but hooks, and a `step` that a torch scheduler has put around this
        one's."""
        left = ("step", "_opt_called")
        return {n: v for n, v in vars(self).items() if not n.startswith("_optimizer_") and n not in left}

    def state_dict(self) -> dict[str, Any]:
        """Return the state, as torch's optimizers do, and the noise's in the entry ``sampler``; hooks see both.

        Raises:
            UserError: `torch.distributed.checkpoint` asks for it, which would lose the noise.
        """
        if called_from(CHECKPOINT):
            raise UserError(
                f"{type(self).__name__}: torch.distributed.checkpoint drops the entry 'sampler' of the state, where "
                "the noise stands: save sampler.state_dict() with torch.save"
            )
        with self._without_hooks("state_dict_post") as (hooks,):
            state = {**self._of_torch("state_dict"), "sampler": self._own_state()}
        for hook in hooks:
            if (altered := hook(self, state)) is not None:
                state = altered
        return state

    def _own_state(self) -> dict[str, Any]:
        """Return the state's entry ``sampler``."""
        return {"kind": self.kind, "num_data": self.num_data, **self._noise.state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave: parameters' states, groups and where the noise stood, bit for bit.

        Raises:
            UserError: another optimizer's state, or one of an older version, whose noise was another.
        """
        with self._without_hooks("load_state_dict_pre", "load_state_dict_post") as (before, after):
            rest = dict(state_dict)
            for hook in before:
                if (altered := hook(self, rest)) is not None:
                    rest = dict(altered)
            self._load(rest.pop("sampler", None), rest)
        for hook in after:
            hook(self)

    def _load(self, own: dict[str, Any] | None, rest: dict[str, Any]) -> None:
        """Restore the entry ``sampler`` and the rest of a state."""
        if own is None:
            raise UserError(
                f"{type(self).__name__}: the state has no 'sampler' entry: it was saved by another optimizer, or by "
                "torch.distributed.checkpoint, which drops it"
            )
        saved_by = own.get("kind", self.kind)
        if saved_by != self.kind and ":" not in saved_by + self.kind:  # a user's class may be imported by another path
            raise UserError(f"{type(self).__name__}: the state was saved by another sampler, {saved_by}")
        noise = Noise.load(own)
        self._of_torch("load_state_dict", rest)
        # torch casts states to the parameter's dtype and keeps tensors that need no cast, which two samplers would
        # share.
        saved = (rest["state"].get(i, {}) for group in rest["param_groups"] for i in group["params"])
        for p, state in zip(self.parameters(), saved, strict=True):
            for name, value in state.items():
                if isinstance(value, Tensor):
                    self.state[p][name] = value.detach().to(p.device, copy=True)
        self.num_data, self._noise, self._begun = own["num_data"], noise, True

    @contextmanager
    def _without_hooks(self, *names: str) -> Iterator[list[list[Callable[..., Any]]]]:
        """Yield the hooks of the names, which torch does not call in the body: it would not show them the entry
        ``sampler``."""
        kept = {f"_optimizer_{name}_hooks": getattr(self, f"_optimizer_{name}_hooks") for name in names}
        vars(self).update({name: OrderedDict() for name in kept})
        try:
            yield [list(hooks.values()) for hooks in kept.values()]
        finally:
            vars(self).update(kept)


def squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of the squares of all entries, in double precision."""
    return torch.stack(
        [torch.linalg.vector_norm(t, dtype=torch.float64).square().to(tensors[0].device) for t in tensors]
    ).sum()


def mean_of(sums: Sequence[Tensor], count: int) -> Tensor | None:
    """Return the mean over all groups' coordinates of their sums; None without coordinates."""
    return torch.stack([s.to(sums[0].device) for s in sums]).sum() / count if count else None


def lane_sums(tensors: Iterable[Tensor], lanes: int) -> Tensor:
    """Return the sum over all coordinates of each lane, [lanes]; without lanes the sum of everything, [1]."""
    sums = [t.reshape(lanes, -1).sum(dim=1, dtype=torch.promote_types(t.dtype, torch.float32)) for t in tensors]
    return torch.stack([s.to(sums[0].device) for s in sums]).sum(dim=0)


def coordinates(tensors: Iterable[Tensor], lanes: int) -> int:
    """Return the number of coordinates of one lane."""
    return sum(t.numel() for t in tensors) // lanes


def spread(values: Tensor, like: Tensor) -> Tensor:
    """Return ``values`` [lanes] (or [1]) shaped to multiply ``like`` [lanes, …], on its device."""
    return values.to(like.device).reshape([-1] + [1] * (like.ndim - 1) if like.ndim else [])


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a state kept for parameters of ``dtype``: single precision at least."""
    return torch.promote_types(dtype, torch.float32)
