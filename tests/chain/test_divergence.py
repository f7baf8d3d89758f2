"""A divergence is noticed, never handed out, and traced to the very step and tensor by a replay."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from raychains import samplers
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.chain.divergence_replay import Diagnosis, diagnose
from raychains.core.errors import UserError
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec, canonical_json
from raychains.schedules import Cyclical
from raychains.tasks.digits import Digits
from tests.chain.chain_cases import HALF, SAMPLERS, WITH_LAYERS, run, spec, state_hash, stored, temperature_of
from tests.chain.chain_tasks import VariedDigits

TROUBLE = 14
"""The step at which a planted task goes wrong: the last but one of its epoch, behind the first cycle."""
TWO_GRADIENTS = [kind for kind in SAMPLERS if samplers.KINDS[kind].gradients_per_step == 2]


class Planted(Digits):
    """Digits whose loss or gradient goes wrong on one minibatch, a function of the minibatch alone.

    Args:
        what: ``loss`` is infinite with an ordinary gradient, ``gradient`` NaN in two entries of one parameter,
            ``huge`` finite in one entry but with an infinite square, ``largest`` nearly the largest number there,
            ``second`` the loss NaN when asked a second time.
        batch: the minibatch's data, of which sub-minibatches are parts.
    """

    def __init__(self, what: str, batch: Sequence[int]) -> None:
        super().__init__(train=90, hidden=[8])
        self._own = {"what": what, "batch": list(batch)}
        self._what, self._batch, self._asked = what, set(batch), 0

    def settings(self) -> dict[str, Any]:
        return self._own

    def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
        loss = super().backward(model, batch, generator)
        assert loss is not None
        if not set(batch.tolist()) <= self._batch:
            return loss
        self._asked += 1
        bias = dict(model.named_parameters())[BIAS].grad
        assert bias is not None
        if self._what == "gradient":
            bias[1:3] = math.nan
        if self._what in ("huge", "largest"):
            bias[0] = {"huge": 1e25, "largest": 3.3e38}[self._what]
        bad = {"loss": math.inf, "second": math.nan if self._asked == 2 else 0.0}
        return loss + bad.get(self._what, 0.0)


BIAS = next(
    name for name, p in Digits(train=90, hidden=[8]).build_model(seed=0, lanes=1).named_parameters() if p.ndim == 1
)


def planted(sampler: str, what: str, **change: Any) -> ChainSpec:
    """A chain of one sampler that goes wrong at step `TROUBLE`."""
    epoch, position = divmod(TROUBLE - 1, 5)
    batch = Chain(spec("digits", "sgd")).order(epoch)[position].tolist()
    return spec("digits", sampler, task=Planted(what, batch).spec(), **change)


def wild(task: str, sampler: str, lr: float, **change: Any) -> ChainSpec:
    """A chain that runs away by itself."""
    schedule = Cyclical(steps=2 * HALF, lr=lr, cycles=1, exploration=0.0, temperature=temperature_of(sampler))
    return spec(task, sampler, schedule=schedule.part(), **change)


def failure(chain: Chain) -> Diverged:
    with pytest.raises(Diverged) as caught:
        run(chain)
    return caught.value


def from_both(made: ChainSpec, after: int) -> Diagnosis:
    """The diagnosis from the start, which must agree with that from a checkpoint."""
    chain = Chain(made)
    run(chain, until=after)
    state = stored(chain.state_dict())
    error = failure(chain)
    whole, later = diagnose(made, None, error), diagnose(made, state, error)
    assert (later.replayed_from, later.start_scale) != (whole.replayed_from, whole.start_scale)
    skip = {"replayed_from", "start_scale"}
    if later.step == after + 1:  # the step before lies before the checkpoint
        skip.add("gradient_norm_before")
        assert later.gradient_norm_before is None
    assert {k: v for k, v in later.to_json().items() if k not in skip} == {
        k: v for k, v in whole.to_json().items() if k not in skip
    }
    assert "\n" not in whole.sentence() and f"step {whole.step} of 24" in whole.sentence()
    return whole


# Planted


@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if s not in WITH_LAYERS])  # the task has a loss of its own
def test_an_infinite_loss_is_found_at_its_step(sampler: str) -> None:
    found = from_both(planted(sampler, "loss"), after=7)
    assert (found.kind, found.step, found.seen_at, found.tensor, found.loss) == ("loss", 14, 15, None, math.inf)
    assert (found.epoch, found.cycle, found.stage) == (2, 1, "exploration")
    assert found.last_loss is not None and found.last_loss_step == 13 and math.isfinite(found.last_loss)
    assert found.gradient_norm is not None and math.isfinite(found.gradient_norm)
    assert found.sentence().startswith("the loss became inf at step 14 of 24 (epoch 2, cycle 1, exploration)")


@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if s not in WITH_LAYERS])
def test_a_gradient_undefined_in_one_parameter_is_found_with_its_name(sampler: str) -> None:
    slow = Cyclical(steps=2 * HALF, lr=1e-3, cycles=1, exploration=0.5)
    change = {"schedule": slow.part()} if sampler == "psgld" else {}  # whose first steps would throw it far away
    found = from_both(planted(sampler, "gradient", **change), after=7)
    assert (found.kind, found.step, found.tensor, found.nonfinite, found.size) == ("gradient", 14, BIAS, 2, 8)
    assert 14 <= found.seen_at <= 15 and found.infinite == 0 and found.last_loss_step == 14
    assert found.gradient_norm is not None and math.isnan(found.gradient_norm)
    assert found.gradient_norm_before is not None and 0 < found.gradient_norm_before < 100
    sentence = found.sentence()
    assert f"the gradient of {BIAS} became non-finite (2 of 8 entries)" in sentence and "square root of 0" in sentence


@pytest.mark.parametrize("sampler", TWO_GRADIENTS)
def test_the_second_of_two_gradients_is_looked_at_too(sampler: str) -> None:
    made = planted(sampler, "second")
    # What is reported as the step's loss is that of the first point, so a planted loss of the second goes unseen.
    found = diagnose(made, None, Diverged("the loss is nan at step 15", 15))
    assert (found.kind, found.step, found.point) == ("loss", 14, 2) and "second point" in found.sentence()


def test_a_samplers_state_that_overflows_is_no_silent_stop() -> None:
    """V = ∞ makes pSGLD's step 0 for ever: every parameter stays finite and nothing moves."""
    made = planted("psgld", "huge")
    error = failure(Chain(made))
    found = diagnose(made, None, error)
    assert (found.kind, found.step, found.tensor, found.nonfinite) == ("state", 14, f"square_avg of {BIAS}", 1)
    assert error.step == 20, "the first sample of the second cycle"
    assert f"square_avg of {BIAS} became non-finite (1 of 8 entries)" in found.sentence()


@pytest.mark.parametrize("sampler", ["sgld", "sghmc", "sgnht", "emcmc", "sam"])
def test_parameters_that_overflow_under_a_finite_gradient_are_found_at_their_step(sampler: str) -> None:
    schedule = Cyclical(steps=2 * HALF, lr=40.0, cycles=1, exploration=0.0, temperature=0.0)
    found = from_both(planted(sampler, "largest", schedule=schedule.part()), after=7)
    assert (found.kind, found.step, found.tensor, found.nonfinite, found.size) == ("parameter", 14, BIAS, 1, 8)
    assert found.gradient_norm is not None and 3e38 < found.gradient_norm < math.inf
    assert f"{BIAS} became non-finite (1 of 8 entries)" in found.sentence() and "smaller lr" in found.sentence()


# By themselves


class Witness:
    """An independent eye on a chain: runs it step by step and says at which step anything was first non-finite."""

    def __init__(self, made: ChainSpec) -> None:
        self.chain, self.bad = Chain(made), False
        plain = self.chain.task.backward

        def backward(model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
            loss = plain(model, batch, generator)
            values = [p.grad for p in model.parameters()] + [loss]
            self.bad |= any(v is not None and not bool(torch.isfinite(v).all()) for v in values)
            return loss

        self.chain.task.backward = backward  # type: ignore[method-assign]

    def step(self) -> int:
        while not self.chain.done:
            try:
                run(self.chain, until=self.chain.step + 1)
            except Diverged:
                return self.chain.step
            states = [v for state in self.chain.sampler.state.values() for v in state.values() if isinstance(v, Tensor)]
            values = [*self.chain.model.state_dict().values(), *states]
            if self.bad or not all(bool(torch.isfinite(v).all()) for v in values):
                return self.chain.step
        return 0


WILD = [
    *[("mixture", sampler, 1e6) for sampler in ("sgd", "sgld", "sghmc", "emcmc", "entropy-sgld", "sam")],
    *[("mixture", sampler, 1e15) for sampler in ("sgnht", "bsam")],
    ("mixture", "psgld", 1e30),
    *[("digits", sampler, 1e6) for sampler in ("sgdm", "sgld", "psgld", "sam", "bsam")],
    *[("digits", sampler, 1e15) for sampler in ("entropy-sgd",)],
]


@pytest.mark.parametrize(("task", "sampler", "lr"), WILD, ids=lambda v: str(v))
def test_a_runaway_chain_is_traced_to_the_step_that_an_independent_eye_sees(task: str, sampler: str, lr: float) -> None:
    made = wild(task, sampler, lr)
    found = from_both(made, after=1)
    assert found.step == Witness(made).step() <= found.seen_at
    assert found.lr == Chain(made).schedule.at(found.step).lr and found.lr > 1000
    assert "smaller lr" in found.sentence() or "lower lr" in found.sentence()


def test_noise_as_large_as_the_parameters_is_blamed() -> None:
    noisy, quiet = (diagnose(s, None, failure(Chain(s))) for s in (wild("digits", k, 1e6) for k in ("sgld", "sgdm")))
    assert noisy.noise_std == pytest.approx(math.sqrt(2 * noisy.lr / 90), rel=1e-9) and quiet.noise_std == 0
    assert "noise is as large as the parameters" in noisy.sentence() and "temperature" in noisy.hint()
    assert "noise is" not in quiet.sentence() and "parameters had grown" in quiet.sentence()


def test_a_draws_own_statistics_are_named() -> None:
    class NoInputs(VariedDigits):
        """Trains on the images and re-estimates statistics from inputs that are infinite."""

        def backward(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor | None:
            loss = nn.functional.cross_entropy(model(self.source.inputs[batch]), self.source.targets[batch])
            loss.backward()
            return loss.detach()

        def inputs(self, batch: Any) -> Tensor:
            return torch.full_like(self.source.inputs[batch], math.inf)

    task = NoInputs(batchnorm=True)
    made = spec("digits", "sgld", task=task.spec(), batchnorm="reestimate")
    error = failure(Chain(made, task))
    found = diagnose(made, None, error, task=task)
    assert (found.kind, found.step, found.seen_at) == ("draw", 8, 8) and "running_mean" in str(error)


# What else a diagnosis says and leaves alone


def test_a_replay_that_stays_finite_says_so() -> None:
    made = spec("digits", "sghmc")
    found = diagnose(made, None, Diverged("the loss is nan at step 15: a smaller lr may help (lr is 0.1)", 15))
    assert found.kind is None and found.step == 15 and found.nonfinite == 0
    assert found.sentence().startswith("the loss is nan at step 15") and "stayed finite" in found.sentence()
    assert "environment" in found.sentence() and "\n" not in found.sentence()


def test_trouble_at_the_first_step_is_the_tasks() -> None:
    batch = Chain(spec("digits", "sgd")).order(0)[0].tolist()
    made = spec("digits", "sghmc", task=Planted("loss", batch).spec())
    found = diagnose(made, None, failure(Chain(made)))
    assert found.step == 1 and "task's data and loss" in found.sentence() and found.gradient_norm_before is None


def test_a_replay_follows_the_noise_of_its_attempt() -> None:
    made = wild("mixture", "sgld", 1e6, block_draws=5)
    chain = Chain(made)
    chain.restart_noise(2)
    error = failure(chain)
    norms = {a: diagnose(made, None, error, noise_attempt=a).gradient_norm_before for a in (0, 2)}
    begun = Chain(made)
    begun.restart_noise(2)
    assert diagnose(made, begun.state_dict(), error).gradient_norm_before == norms[2] != norms[0]
    earlier = diagnose(made, Chain(made).state_dict(), error, noise_attempt=2)
    assert earlier.gradient_norm_before == norms[2]


@pytest.mark.parametrize("made", [planted("sghmc", "loss"), wild("digits", "sgd", 1e6), spec("digits", "sgd")])
def test_a_diagnosis_is_plain_json_and_comes_back(made: ChainSpec) -> None:
    found = diagnose(made, None, Diverged("the loss is nan at step 15", 15))
    data = json.loads(canonical_json(found.to_json()))
    back = Diagnosis.from_json({**data, "later": 1})
    assert back.to_json() == found.to_json() and back.sentence() == found.sentence()
    assert str(back.loss) == str(found.loss)
    with pytest.raises(UserError, match="newer"):
        Diagnosis.from_json({**data, "format": 2})


def test_a_replay_leaves_the_state_and_torchs_global_generator_alone() -> None:
    made = planted("sghmc", "gradient")
    chain = Chain(made)
    run(chain, until=7)
    state, before, generator = chain.state_dict(), state_hash(chain), torch.get_rng_state()
    diagnose(made, state, Diverged("", 15))
    assert state_hash(chain) == before and torch.equal(torch.get_rng_state(), generator)


# Never handed out


def numbers(value: Any) -> Iterator[Tensor]:
    """Every tensor and every float of a nested state or event."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, Tensor | float):
        yield torch.as_tensor(value, dtype=torch.float64) if isinstance(value, float) else value


@pytest.mark.parametrize(
    "made",
    [
        *[planted(sampler, what) for sampler in ("sghmc", "entropy-sgd", "bsam") for what in ("loss", "gradient")],
        planted("psgld", "huge"),
        *[wild(task, sampler, lr) for task, sampler, lr in WILD],
        *[wild("mixture", "sghmc", 1e6, block_draws=n) for n in (1, 24)],
    ],
    ids=lambda s: f"{s.sampler.kind}-{s.task.settings.get('what', s.task.kind.rpartition(':')[2])}-{s.block_draws}",
)  # fmt: skip
def test_no_sample_checkpoint_or_progress_record_holds_a_non_finite_number(made: ChainSpec) -> None:
    """A checkpoint is tried after every step, and whatever a caller asks of a diverged chain is refused."""
    chain = Chain(made)
    handed: list[Any] = []
    with pytest.raises(Diverged) as first:
        while not chain.done:
            for event in run(chain, until=chain.step + 1):
                handed.append(
                    [event.meta.to_json(), dict(event.tensors)] if isinstance(event, Sample) else event.to_json()
                )
            handed.append(chain.state_dict())
            assert all(bool(torch.isfinite(t).all()) for t in numbers(handed.pop()))
    assert handed and all(bool(torch.isfinite(t).all()) for t in numbers(handed))
    assert first.value.step == chain.step
    assert "\n" not in str(first.value) and "smaller lr" in str(first.value)
    for ask in (chain.advance, chain.state_dict):
        with pytest.raises(Diverged, match=f"step {chain.step}"):
            ask()


def test_a_good_state_makes_a_diverged_chain_whole() -> None:
    chain = Chain(planted("sghmc", "loss"))
    run(chain, until=7)
    good = stored(chain.state_dict())
    failure(chain)
    chain.load_state_dict(good)
    assert chain.step == 7 and chain.advance() and chain.step == 8


def test_an_unfinished_block_with_a_non_finite_draw_reaches_no_checkpoint() -> None:
    chain = Chain(spec("mixture", "sghmc"))
    run(chain, until=HALF)
    state = stored(chain.state_dict())
    state["block"]["theta"]["theta"][0] = math.nan
    chain.load_state_dict(state)
    with pytest.raises(Diverged, match="draw of theta"):
        chain.state_dict()
