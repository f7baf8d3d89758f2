"""The image tasks: what is learned from, what is held out, what the network is given, and splits that are read when
asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.core.config import Run
from raychains.data import sets
from raychains.data.augment import crop_and_flip
from raychains.evaluation.classification import Classification, OutOfDistribution
from raychains.planning import methods
from raychains.schedules import Cyclical
from raychains.tasks.images import ImageTask
from tests.checks import refused
from tests.tasks import made_images
from tests.tasks.made_images import LIGHT, NETWORKS, TEST, TRAIN, made

Read = list[tuple[str, str]]
ALL = pytest.mark.parametrize("name", NETWORKS)


@pytest.fixture(autouse=True)
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    return made_images.use(monkeypatch)


def task(name: str, **settings: Any) -> ImageTask:
    found = tasks.make(name, **settings)
    assert isinstance(found, ImageTask)
    return found


def inputs_of(split: Any) -> list[bytes]:
    return [image.tobytes() for image in split.inputs.numpy()]


# Data and settings


@ALL
def test_all_training_images_are_learned_from_where_nothing_else_is_said(name: str) -> None:
    whole = task(name)
    data = made(NETWORKS[name], "train")
    assert whole.num_data == TRAIN and whole.settings() == {} and whole.fingerprint == data.fingerprint
    images, labels = whole.source.batch(torch.arange(TRAIN))
    assert torch.equal(images, data.images) and torch.equal(labels, data.labels) and images.dtype == torch.uint8
    assert task(name, train_subset=TRAIN, split_seed=5).spec() == whole.spec()


@ALL
def test_a_subset_and_a_held_out_share_are_disjoint_and_what_the_splits_say(name: str) -> None:
    part = task(name, train_subset=120, val_split=0.25)
    assert part.num_data == 90
    train, val = inputs_of(part.splits()["train"]), inputs_of(part.splits()["val"])
    assert (len(train), len(val), len(set(train) | set(val))) == (90, 30, 120)
    assert set(train) | set(val) < {image.tobytes() for image in made(NETWORKS[name], "train").images.numpy()}
    learned, labels = part.source.batch(torch.arange(90))
    assert [image.tobytes() for image in learned.numpy()] == train
    assert labels.tolist() == part.splits()["train"]._labels.tolist()  # type: ignore[attr-defined]


def test_choices_of_data_are_told_apart() -> None:
    settings: list[dict[str, Any]] = [
        {}, {"train_subset": 120}, {"val_split": 24}, {"train_subset": 120, "val_split": 24},
        {"val_split": 24, "split_seed": 1}, {"val_split": 25},
    ]  # fmt: skip
    made_tasks = [task("mnist-mlp", **s) for s in settings]
    assert len({t.fingerprint for t in made_tasks}) == len(settings)
    assert task("mnist-mlp", val_split=0.1).spec() == made_tasks[2].spec()  # a share is the number that it comes to


def test_settings_name_only_what_differs() -> None:
    assert task("cifar10-resnet18", augment=True).settings() == {}
    assert task("cifar10-resnet18", augment=False).settings() == {"augment": False}
    assert task("mnist-mlp", augment=True, hidden=[400, 400]).settings() == {"augment": True}
    assert task("cifar10-resnetpp56", depth=8, prior_scale=1).settings() == {"depth": 8}
    assert task("mnist-cnn", train_subset=50).settings() == {"train_subset": 50, "split_seed": 0}


# The network and what it is given


def test_resnetpp56_is_56_deep_with_twice_the_filters_and_its_own_prior() -> None:
    model = task("cifar10-resnetpp56").build_model(seed=0, lanes=1)
    layers = [n for n, _ in model.named_parameters() if n.endswith("direction") and "projection" not in n]
    assert len(layers) == 56 and model.stem.direction.shape == (32, 3, 3, 3)  # type: ignore[union-attr]
    own = task("cifar10-resnetpp56", prior_scale=2.0).prior
    assert own is not None and '"scale": 2.0' in json.dumps(own.to_json())
    assert own.log_density(dict(model.named_parameters())).isfinite()
    own_priors = ("cifar10-resnetpp56", "cifar10-resnet20-frn-silu")
    assert all(task(name).prior is None for name in NETWORKS if name not in own_priors)


def test_hmcs_network_has_the_competitions_prior_and_images_as_they_are() -> None:
    one = task("cifar10-resnet20-frn-silu", depth=8, width=4)
    model, other = one.build_model(seed=0, lanes=1), task("cifar10-resnet20-frn-silu", depth=8, prior_variance=1.5)
    assert one.settings() == {"depth": 8, "width": 4} and other.settings() == {"prior_variance": 1.5, "depth": 8}
    theta = torch.cat([p.detach().double().flatten() for p in model.parameters()])
    assert one.prior is not None and other.prior is not None
    for prior, variance in ((one.prior, 0.2), (other.prior, 1.5)):
        expected = torch.distributions.Normal(0.0, variance**0.5).log_prob(theta).sum()
        torch.testing.assert_close(
            prior.log_density(dict(model.named_parameters())).double(), expected, rtol=1e-6, atol=0
        )
    images = made("cifar10", "test").images[:2]
    assert torch.equal(one.augmented(images, torch.Generator()), images)


def statistics(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    hmcs = ((0.49, 0.48, 0.44), (0.2, 0.2, 0.2))
    return hmcs if name == "cifar10-resnet20-frn-silu" else sets.statistics(NETWORKS[name])


def by_hand(name: str, images: Tensor) -> Tensor:
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, -1, 1, 1) for v in statistics(name))
    return (images.double() / 255 - mean) / std


@pytest.mark.parametrize("name", [n for n in NETWORKS if n != "cifar100-resnet18"])
def test_the_loss_is_the_mean_cross_entropy_of_normalised_images(name: str) -> None:
    plain = task(name, augment=False, **LIGHT.get(name, {}))
    model = plain.build_model(seed=0, lanes=1).double()
    n = 2 if "resnet18" in name or "resnet20" in name else 16  # double precision is slow
    batch = plain.epoch(seed=3, batch_size=n)[1]
    loss = plain.backward(model, batch, torch.Generator())
    assert loss is not None and not loss.requires_grad
    images, labels = made(NETWORKS[name], "train").images[batch], made(NETWORKS[name], "train").labels[batch]
    twin = plain.build_model(seed=0, lanes=1).double()
    log_p = nn.functional.log_softmax(twin(by_hand(name, images)), dim=1)
    expected = -log_p[torch.arange(n), labels].mean()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-10)
    for p, g in zip(model.parameters(), torch.autograd.grad(expected, list(twin.parameters())), strict=True):
        torch.testing.assert_close(p.grad, g, rtol=1e-6, atol=1e-9)


def test_augmented_images_come_from_the_chains_own_stream() -> None:
    augmented = task("cifar10-resnetpp56", depth=8, width=4)
    model = augmented.build_model(seed=0, lanes=1)
    batch = augmented.epoch(seed=0, batch_size=8)[0]

    def loss(seed: int) -> float:
        return augmented.loss(model, batch, torch.Generator().manual_seed(seed)).item()

    images, labels = augmented.source.batch(batch)
    shown = crop_and_flip(images, torch.Generator().manual_seed(1), padding=4)
    assert not torch.equal(shown, images)
    expected = nn.functional.cross_entropy(model(augmented.prepare(shown)), labels)
    assert loss(1) == loss(1) == pytest.approx(expected.item(), rel=1e-5) and loss(1) != loss(2)
    plain = task("mnist-cnn")
    small, generator = plain.build_model(seed=0, lanes=1), torch.Generator().manual_seed(1)
    before = generator.get_state()
    plain.loss(small, batch, generator)
    assert torch.equal(before, generator.get_state())  # nothing is drawn where nothing is augmented


@ALL
def test_preparation_is_the_same_for_training_evaluation_and_export(name: str) -> None:
    one = task(name)
    images = made(NETWORKS[name], "test").images[:9]
    prepared = one.prepare(images)
    assert prepared.dtype == torch.float32
    torch.testing.assert_close(prepared.double(), by_hand(name, images), rtol=1e-5, atol=1e-5)
    assert torch.equal(one.inputs(torch.arange(9)), one.prepare(one.source.inputs[:9]))
    mean, std = statistics(name)
    assert json.loads(json.dumps(one.preparation())) == {"kind": "normalise", "mean": list(mean), "std": list(std)}


@pytest.mark.parametrize(
    "images", [torch.rand(2, 1, 28, 28), torch.zeros(2, 28, 28, dtype=torch.uint8), torch.zeros(4)]
)
def test_other_inputs_than_bytes_of_the_sets_shape_are_one_line(images: Tensor) -> None:
    with refused("images", "uint8", "[n, 1, 28, 28]"):
        task("mnist-mlp").prepare(images)


# Splits


COMPANIONS = {
    "mnist": ["notmnist", "fashion-mnist"], "fashion-mnist": ["mnist", "notmnist"], "cifar10": ["svhn", "cifar100"],
    "cifar100": ["svhn", "cifar10"],
}  # fmt: skip


@ALL
def test_names_of_splits_are_known_without_their_data(name: str, read: Read) -> None:
    dataset = NETWORKS[name]
    splits = task(name, val_split=0.1).splits()
    names = [n for n in splits if not n.startswith("corrupted:")]
    assert names == ["test", "train", "val", *(f"ood:{c}" for c in COMPANIONS[dataset])]
    corruptions = [n for n in splits if n.startswith("corrupted:")]
    assert len(corruptions) == (95 if dataset == "cifar10" else 0)
    assert ("corrupted:fog:3" in splits) == (dataset == "cifar10")
    assert "corrupted:fog:6" not in splits and "val" not in task(name).splits()
    assert set(read) == {(dataset, "train")}


@ALL
def test_a_split_is_read_when_it_is_asked_for_and_no_other(name: str, read: Read) -> None:
    dataset = NETWORKS[name]
    splits = task(name).splits()
    read.clear()
    test = splits["test"]
    assert isinstance(test, Classification) and read == [(dataset, "test")]
    assert inputs_of(test) == [image.tobytes() for image in made(dataset, "test").images.numpy()]
    assert test._labels.tolist() == made(dataset, "test").labels.tolist()
    companion = COMPANIONS[dataset][0]
    outside = splits[f"ood:{companion}"]
    assert isinstance(outside, OutOfDistribution) and read == [(dataset, "test"), (companion, "test")]
    assert len(outside.inputs) == TEST
    assert splits["test"] is test and len(read) == 2
    prints = [test.fingerprint, outside.fingerprint, splits["train"].fingerprint]
    assert len(set(prints)) == 3


def test_a_companion_that_is_missing_is_one_line_and_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    splits = task("mnist-mlp").splits()
    corrupted = task("cifar10-resnet18").splits()
    monkeypatch.undo()  # the real reader, in an empty data root
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    assert "ood:notmnist" in splits and isinstance(splits["train"], Classification)
    with refused("notmnist", str(tmp_path)):
        splits["ood:notmnist"]
    with refused("cifar10-c", str(tmp_path), "fog.npy"):
        corrupted["corrupted:fog:3"]


@pytest.mark.parametrize("name", ["mnist-cnn", "cifar10-resnetpp56"])
def test_evaluation_predicts_what_the_prepared_network_says(name: str) -> None:
    one = task(name, **LIGHT.get(name, {}))
    test = one.splits()["test"]
    tensors = one.build_model(seed=4, lanes=1).state_dict()
    model = one.build_model(seed=0, lanes=1).double().eval()
    model.load_state_dict(tensors)
    with torch.no_grad():
        expected = torch.log_softmax(model(by_hand(name, made(NETWORKS[name], "test").images)), dim=1).numpy()
    np.testing.assert_allclose(test.predict(tensors, 0), expected, rtol=1e-3, atol=1e-4)


# Settings of the networks for machines without a GPU


def beside_resnet18(name: str, sampler: str) -> list[methods.Method]:
    pair = (name, f"{name.partition('-')[0]}-resnet18")
    return [methods.resolve(Run(), task=tasks.make(task), sampler=sampler) for task in pair]


@pytest.mark.parametrize(
    ("name", "step", "exploration"),
    [("cifar10-resnet20", 0.2, 0.8), ("cifar10-lenet", 0.1, 0.8), ("cifar100-lenet", 0.1, 0.94)],
)
def test_settings_are_resnet18s_but_for_the_step_size(name: str, step: float, exploration: float) -> None:
    for sampler in ("csghmc", "csgld", "sgdm", "sam", "emcmc", *(["bsam"] if "resnet" in name else [])):
        small, large = beside_resnet18(name, sampler)
        assert small.schedule.at(1).lr == pytest.approx(large.schedule.at(1).lr * step / 0.5)
        assert (small.length, small.spec.batch_size) == (large.length, large.spec.batch_size)
        assert small.spec.sampler == large.spec.sampler
        if isinstance(small.schedule, Cyclical) and sampler.startswith("c"):
            assert small.schedule.exploration == exploration


@pytest.mark.parametrize("name", ["cifar10-lenet", "cifar100-lenet"])
def test_bsam_moves_a_network_without_normalisation_less(name: str) -> None:
    small, large = beside_resnet18(name, "bsam")
    ours, theirs = dict(small.spec.sampler.settings), dict(large.spec.sampler.settings)
    assert (small.schedule.at(1).lr, ours.pop("rho"), theirs.pop("rho")) == (0.05, 0.001, 0.01)
    assert ours == theirs and small.schedule.at(1).temperature == large.schedule.at(1).temperature == 0.25
