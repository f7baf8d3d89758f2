"""What is tried of a user's network, loss and data before a run: what is refused, and that legitimate ones are not."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import raychains as rc
from raychains import tasks
from raychains.api import plans
from raychains.chain.chain import Chain
from raychains.chain.proof import Proof, prove
from raychains.core.config import Run
from raychains.core.rng import seeded
from raychains.core.sample import Sample
from raychains.core.spec import ChainSpec
from raychains.tasks import user_model
from raychains.tasks.examples import check_mean, varied
from raychains.tasks.likelihoods import Likelihood, likelihood
from tests.chain.chain_tasks import VariedDigits
from tests.checks import refused
from tests.spread import spread
from tests.tasks.own_networks import CLASSES, FEATURES, LABELS, NETWORKS, SERIES, VECTORS, Body, frozen_backbone, linear


def task(net: Callable[[], nn.Module] = linear, x: Any = VECTORS, y: Tensor = LABELS, **settings: Any) -> tasks.Task:
    """A task of a user's network, found again by its spec."""
    return tasks.give(rc.Task.from_module(net, (x, y), (x, y), name="tried", **settings))


def spec(of: tasks.Task, **options: Any) -> ChainSpec:
    """The first chain of a run of that task."""
    usual: dict[str, Any] = {"sampler": "sghmc", "epochs": 4, "batch_size": 10, "chains": 1, "lr": 0.05}
    planned = plans.run(Run(**{**usual, **options}), task=of)
    return next(iter(planned.comparison.chains().values()))


def proof(net: Callable[[], nn.Module], x: Tensor = VECTORS, **options: Any) -> Proof:
    return prove(spec(task(net, x), **options))


NOTES = {
    "frozen backbone": "in evaluation mode while the others train: 0",
    "dropout in evaluation": "in evaluation mode the network's outputs are random",
    "unused head": "no loss of 3 batches reaches spare.weight, spare.bias",
}


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_is_a_function_of_its_state_runs_and_its_plan_says_what_is_unusual(name: str) -> None:
    found = proof(*NETWORKS[name])
    assert found.trial is not None and len(found.notes) == (name in NOTES)
    assert all(note.startswith(NOTES[name]) for note in found.notes)


# A sample is the whole function


class Attribute(Body):
    def __init__(self) -> None:
        super().__init__()
        self.B = torch.randn(FEATURES, FEATURES)

    def body(self, x: Tensor) -> Tensor:
        return x @ self.B


class Shuffled(Body):
    def __init__(self) -> None:
        super().__init__()
        self.order = np.random.permutation(FEATURES)

    def body(self, x: Tensor) -> Tensor:
        return x[:, self.order]


class InList(Body):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(FEATURES, FEATURES)]

    def body(self, x: Tensor) -> Tensor:
        return self.layers[0](x)


class Unsaved(Body):
    """A running mean that its state lacks: checkpoints hold it, samples do not."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES), persistent=False)

    def body(self, x: Tensor) -> Tensor:
        if self.training:
            self.mean.mul_(0.999).add_(x.detach().mean(0), alpha=0.001)
        return x - self.mean


class Closure(nn.Module):
    """What is drawn stands in a function."""

    def __init__(self) -> None:
        super().__init__()
        shift = torch.randn(FEATURES)
        self.out, self.shifted = linear(), lambda x: x + shift

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.shifted(x))


PARTS = {
    Attribute: "(Attribute.B)",
    Shuffled: "(Shuffled.order)",
    InList: "(InList.layers)",
    Unsaved: "(mean)",
    Closure: "",
}


OPTIONS: list[dict[str, Any]] = [{}, {"exact": False}, {"sampler": "swag"}, {"micro_batch": 5}]


@pytest.mark.parametrize(("net", "options"), spread({net.__name__: net for net in PARTS}, OPTIONS))
def test_what_a_network_draws_or_changes_outside_its_state_is_refused_by_name(
    net: Any, options: dict[str, Any]
) -> None:
    depends = "task 'tried': its network's outputs depend on more than its state_dict()"
    with refused(depends, "self.register_buffer", PARTS[net]):
        proof(net, **options)


def test_a_local_model_keeps_what_its_copies_share() -> None:
    """`rc.local` copies one model, with its attributes."""
    model = Attribute()
    made = tasks.give(
        rc.Task.from_module(lambda: __import__("copy").deepcopy(model), (VECTORS, LABELS), (VECTORS, LABELS))
    )
    assert prove(spec(made)).trial is not None


# Examples do not depend on one another


class AcrossExamples(Body):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(FEATURES, 2)

    def body(self, x: Tensor) -> Tensor:
        return self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]


class TimeFirst(Body):
    def __init__(self) -> None:
        super().__init__(8)
        self.layer = nn.LSTM(FEATURES, 8)

    def body(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


DEPEND: dict[str, Callable[[], nn.Module]] = {
    "centred": lambda: Body(body=lambda x: x - x.mean(0)),
    "whitened": lambda: nn.Sequential(nn.BatchNorm1d(FEATURES, track_running_stats=False), linear()),
    "attention across examples": AcrossExamples,
    "time first": TimeFirst,
    # The first half of a batch is as it would be alone.
    "each sees the one before": lambda: Body(body=lambda x: x + 1e-3 * x.roll(1, 0)),
}


@pytest.mark.parametrize("name", DEPEND)
def test_outputs_that_depend_on_other_examples_are_refused(name: str) -> None:
    with refused("model_fn must build a network whose outputs for an example depend on that example alone"):
        task(DEPEND[name], SERIES if name == "time first" else VECTORS)


def test_a_gate_that_opens_in_training_is_seen_before_the_run() -> None:
    """A mean over the batch with a weight that starts at 0."""

    class Gated(Body):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.zeros(()))

        def body(self, x: Tensor) -> Tensor:
            return x - self.gate * x.mean(0)

    with refused("build_model must build a network whose outputs for an example depend on that example alone"):
        proof(Gated)


# Losses

WEIGHTS = torch.tensor([1.0, 9.0])
RARE = (torch.arange(400) % 10 == 0).long()
COUNTS = torch.cat([torch.zeros(200), torch.arange(200.0)])
WORDS = torch.randint(0, 4, (40, 5), generator=torch.Generator().manual_seed(2))
PADDED = torch.where(torch.arange(5) < 1 + torch.arange(40)[:, None] % 5, WORDS, -100)


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs * self.scale.exp(), targets)


def words() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 20), nn.Unflatten(1, (4, 5)))


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_divides_by_a_batchs_weights_is_refused_in_every_order(seed: int) -> None:
    order = torch.randperm(400, generator=torch.Generator().manual_seed(seed))
    x, y = torch.randn(400, FEATURES, generator=torch.Generator().manual_seed(seed)), RARE[order]
    divides = {
        "weights": (lambda: nn.Linear(FEATURES, 2), lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS), y),
        "ignored": (linear, lambda o, t: F.cross_entropy(o, t, ignore_index=1), y),
        "all pairs": (lambda: nn.Linear(FEATURES, 1), F.mse_loss, COUNTS[order]),
    }
    for net, loss, targets in divides.values():
        with refused("loss must be the mean over a batch's examples", "reduction='sum'"):
            task(net, x, targets, loss=loss)
    whole = lambda o, t: F.cross_entropy(o, t, weight=WEIGHTS, reduction="sum") / len(t)  # noqa: E731
    task(lambda: nn.Linear(FEATURES, 2), x, y, loss=whole)


def test_a_mean_over_the_words_of_a_batch_is_refused_where_examples_have_unequal_numbers() -> None:
    with refused("loss must be the mean over a batch's examples"):
        task(words, VECTORS, PADDED, loss=F.cross_entropy)


def test_losses_that_change_their_arguments_are_means_all_the_same() -> None:
    changed = lambda o, t: (o.squeeze(1).sub_(t).square_()).mean()  # noqa: E731
    made: Any = task(lambda: nn.Linear(FEATURES, 1), VECTORS, torch.randn(40), loss=changed)
    split, state = made.splits()["test"], made.build_model(seed=3, lanes=1).state_dict()
    assert np.array_equal(split.predict(state, 0), split.predict(state, 0))


AVERAGES: list[tuple[Callable[..., Tensor], Tensor, Tensor, int]] = [
    (F.mse_loss, torch.randn(8, 3), torch.randn(8, 3), 3),
    (lambda o, t: (o - t).square().sum(1).mean(), torch.randn(8, 3), torch.randn(8, 3), 1),
    (F.binary_cross_entropy_with_logits, torch.randn(8, 4), torch.rand(8, 4).round(), 4),
    (F.cross_entropy, torch.randn(8, 4, 5), torch.randint(0, 4, (8, 5)), 5),
    (F.cross_entropy, torch.randn(8, 4, 5, 6), torch.randint(0, 4, (8, 5, 6)), 30),
    (lambda o, t: F.cross_entropy(o.transpose(1, 2), t), torch.randn(8, 5, 4), torch.randint(0, 4, (8, 5)), 5),
    (
        lambda o, t: F.cross_entropy(o, t, reduction="sum") / len(t),
        torch.randn(8, 4, 5),
        torch.randint(0, 4, (8, 5)),
        1,
    ),
    (F.cross_entropy, torch.randn(8, 4), torch.randint(0, 4, (8,)), 1),
    (F.smooth_l1_loss, torch.randn(8, 1), torch.randn(8, 1), 1),
]


@pytest.mark.parametrize(("loss", "outputs", "targets", "entries"), AVERAGES, ids=range(len(AVERAGES)))
def test_the_entries_that_a_loss_averages_over_are_counted(
    loss: Any, outputs: Tensor, targets: Tensor, entries: int
) -> None:
    assert check_mean(likelihood(loss, None), nn.Identity(), outputs, targets) == entries


def test_the_plan_says_that_a_mean_over_entries_is_another_temperature() -> None:
    made = task(words, VECTORS, WORDS, loss=F.cross_entropy)
    assert list(made.data_notes) == [
        "the loss averages over the 5 entries of an example: temperature T is 5·T for the sum over them"
    ]
    planned = plans.run(Run(epochs=4, sampler="sghmc", chains=1, lr=0.05, batch_size=10), task=made)
    assert made.data_notes[0] in planned.notes


def test_rare_targets_are_among_the_examples_that_are_tried() -> None:
    targets = torch.zeros(10_000)
    targets[7_777] = 1
    assert 7_777 in varied(targets, 16) and len(varied(targets, 16)) == len(set(varied(targets, 16))) == 16
    missing = torch.where(targets == 1, torch.nan, 0.0)
    assert 7_777 in varied(missing, 16)
    few = varied(torch.zeros(3), 16)
    assert few == varied(torch.zeros(3, 2), 16) and sorted(few) == [0, 1, 2]


def test_a_loss_with_parameters_of_its_own_is_refused_unless_they_are_frozen() -> None:
    closed = nn.Parameter(torch.ones(()))

    class Own(Likelihood):
        name, predicts = "own", "outputs"

        def check(self, outputs: Tensor, targets: Tensor) -> None:
            pass

        def loss(self, model: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
            return F.cross_entropy(outputs, targets) * closed

        def evaluation(self, model: nn.Module, data: Any, classes: int) -> Any:
            raise NotImplementedError

    for loss in (Learned(), lambda o, t: F.cross_entropy(o, t) * closed, Own()):
        with refused("loss must depend on the network's parameters alone", "noise='learned'", "requires_grad_(False)"):
            task(loss=loss)
    task(loss=Learned().requires_grad_(False))
    task(lambda: nn.Linear(FEATURES, 1), VECTORS, torch.randn(40), loss="gaussian", noise="learned")


# Inputs


def test_a_network_that_changes_its_input_is_the_one_that_leaves_it() -> None:
    """Samples, evaluation and the caller's tensor, of data in memory and streamed."""
    x, found = VECTORS.clone(), []
    leaves, changes = (lambda x: (x - 1).relu()), (lambda x: x.sub_(1).relu_())
    for body, resident in ((leaves, True), (changes, True), (changes, False)):
        net = functools.partial(Body, body=body)
        data = rc.Task.from_module(net, _Pairs(x), (x, LABELS), name="tried", resident=resident)
        made: Any = tasks.give(data)
        chain = Chain(dataclasses.replace(spec(made), task=made.spec()))
        events = [event for event in chain if isinstance(event, Sample)]
        split, state = made.splits()["test"], events[-1].tensors
        ensemble = rc.PosteriorPredictive(net(), [e.tensors for e in events], chunk=2)
        given = x.clone()
        with torch.no_grad():
            probabilities = ensemble(given).probabilities
        assert torch.equal(given, x)
        blocks = [split.predict(state, 0) for _ in range(2)]
        assert np.array_equal(blocks[0], blocks[1])
        found.append((blocks[0], probabilities.numpy(), *(t.numpy() for t in state.values())))
    assert torch.equal(x, VECTORS)
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


class _Pairs(Dataset[Any]):
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], LABELS[i]


class Flips(_Pairs):
    """Nine of ten examples are flipped in half of all readings."""

    def __getitem__(self, i: int) -> Any:
        return (self.x[i].flip(0) if i % 10 and torch.rand(()) < 0.5 else self.x[i]), LABELS[i]


@pytest.mark.parametrize("resident", [True, False])
def test_data_that_are_no_function_of_their_index_are_refused_unless_they_state_their_identity(resident: bool) -> None:
    for seed in range(5):
        with seeded(seed), refused("train_set must give the same example for the same index"):
            rc.Task.from_module(linear, Flips(VECTORS), (VECTORS, LABELS), resident=resident)
    stated = Flips(VECTORS)
    stated.fingerprint = "flipped"  # type: ignore[attr-defined]
    rc.Task.from_module(linear, stated, (VECTORS, LABELS), resident=resident)


# Parameters in memory


def test_parameters_that_share_numbers_are_refused_and_ties_are_not() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = linear(), linear()
            self.b.weight.data = self.a.weight.data

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x)

    with refused("model_fn must build parameters with numbers of their own", "'a.weight' and 'b.weight'"):
        task(Shared)

    def expanded() -> nn.Module:
        layer = linear()
        layer.weight = nn.Parameter(torch.zeros(CLASSES, 1).expand(CLASSES, FEATURES))
        return layer

    with refused("model_fn must build parameters with numbers of their own", "'weight'"):
        task(expanded)


# Modes


def test_chains_train_networks_that_come_in_evaluation_mode_but_for_frozen_parts() -> None:
    def net() -> nn.Module:
        return nn.Sequential(frozen_backbone(), nn.Dropout(0.5)).eval()

    modes = {n: m.training for n, m in Chain(spec(task(net))).model.named_modules()}
    assert modes == {n: not n.startswith("0.0") for n, _ in net().named_modules()}
    whole = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)).eval()
    assert all(m.training for m in user_model.train(whole).modules())


def test_a_packed_chain_drops_what_one_alone_does_of_a_network_in_evaluation_mode() -> None:
    """Samples of chains in a pack and alone agree to rounding, of a network that comes in evaluation mode."""

    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(FEATURES, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, CLASSES)).eval()

    made = task(net)
    drawn = []
    for pack in (0, 1):
        chain = Chain(dataclasses.replace(spec(made), pack=pack))
        drawn.append(next(e.tensors["0.weight"] for e in chain if isinstance(e, Sample)))
    assert torch.allclose(*drawn, atol=1e-5)


# The smallest batch


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))


@pytest.mark.parametrize(
    ("n", "settings", "options", "said"),
    [
        (37, {}, {"batch_size": 12}, "batch_size=12 from N = 37 training examples have one with 1, which fails"),
        (40, {"val_split": 3}, {"batch_size": 12}, "batch_size=12 from N = 37 training examples have one with 1"),
        (39, {}, {"batch_size": 12, "micro_batch": 4}, "N = 39 training examples, divided in 3 have one with 1"),
    ],
    ids=["last batch", "after a split", "micro-batches"],
)
def test_a_batch_of_one_under_batchnorm_is_refused_before_the_run(
    n: int, settings: Any, options: Any, said: str
) -> None:
    made = task(normed, VECTORS[:n], LABELS[:n], **settings)
    with pytest.raises(rc.UserError) as caught:
        prove(spec(made, **options))
    assert said in str(caught.value) and "Expected more than 1 value per channel" in str(caught.value)
    advised = int(str(caught.value).partition("take batch_size=")[2].partition(",")[0])
    if "micro_batch" not in options:
        assert prove(spec(made, **{**options, "batch_size": advised})).trial is not None
    assert prove(spec(task(linear, VECTORS[:n], LABELS[:n], **settings), **options)).trial is not None


def test_sub_batches_of_the_trial_are_no_smaller_than_the_chains() -> None:
    """bSAM divides a batch in eight; four examples would leave one each."""
    found = proof(normed, sampler="bsam", batch_size=40, sampler_settings={"m_sharpness": 8})
    assert found.trial is not None


class Thirds(VariedDigits):
    """Digits in three batches of 30, whatever the batch size is."""

    def epoch(self, *, seed: int, batch_size: int) -> Any:
        return super().epoch(seed=seed, batch_size=30)


def test_a_task_that_chooses_its_batches_is_tried_with_them() -> None:
    made = tasks.give(Thirds())
    assert prove(spec(made, batch_size=30)).trial is not None


class OwnLoss(VariedDigits):
    """Digits with a loss of the class's own, which asks no likelihood."""

    def __getattribute__(self, name: str) -> Any:
        assert name != "likelihood"
        return super().__getattribute__(name)

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        x, y = self.source.batch(batch)
        return F.cross_entropy(model(self.network_inputs(x, torch.float32)), y)


def test_a_task_with_a_loss_of_its_own_needs_no_likelihood() -> None:
    assert prove(spec(tasks.give(OwnLoss()))).trial is not None


# Mistakes of a first step


def test_an_example_that_the_first_ones_do_not_show_is_one_line() -> None:
    words = torch.zeros(40, 5, dtype=torch.int64)
    words[39] = 11  # beyond the table
    labels = torch.arange(40) // 39  # its target is another one
    with refused("model_fn or loss fails on some of the training examples", "valid range"):
        task(lambda: nn.Sequential(nn.EmbeddingBag(11, 4), nn.Linear(4, 2)), words, labels)
    with refused("model_fn or loss fails on some of the training examples", "IndexError"):
        task(linear, VECTORS, 3 * labels, loss=F.cross_entropy)


def test_a_mistake_in_a_step_is_one_line_before_anything_starts() -> None:
    class Late(Body):
        def body(self, x: Tensor) -> Tensor:
            return x if not self.training else x[:, :2]

    with refused("task 'tried': a step on the CPU, or a prediction, fails: RuntimeError"):
        proof(Late)
    with refused("task 'tried' must have a loss with a gradient"):
        prove(spec(task(loss=lambda o, t: F.cross_entropy(o.detach(), t))))

    class Sparse(Body):
        def __init__(self) -> None:
            super().__init__(4)
            self.words = nn.Embedding(11, 4, sparse=True)

        def body(self, x: Tensor) -> Tensor:
            return self.words(x).mean(1)

    with refused("needs dense gradients", "sparse=True"):
        proof(Sparse, torch.randint(0, 11, (40, 5)))


def test_what_this_machine_lacks_is_left_to_the_workers() -> None:
    class OnGpus(Body):
        def body(self, x: Tensor) -> Tensor:
            if self.training:
                raise RuntimeError("Torch not compiled with CUDA enabled")
            return x

    assert proof(OnGpus) == Proof(notes=[])
