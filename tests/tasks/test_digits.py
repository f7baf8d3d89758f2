"""The digits task: the published data, a disjoint seeded split, seeded batches and initialisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
from torch import nn

from raychains.data.tabular import load_digits
from raychains.evaluation.classification import Classification
from raychains.tasks.digits import Digits


def test_data_equal_scikit_learns() -> None:
    bunch = sklearn.datasets.load_digits()
    images, labels = load_digits()
    assert images.shape == (1797, 64) and images.dtype == np.float32 and labels.dtype == np.int64
    np.testing.assert_array_equal(images * 16, bunch.data)
    np.testing.assert_array_equal(labels, bunch.target)


def rows(evaluation: Any) -> list[bytes]:
    return [
        image.tobytes() + bytes([label])
        for image, label in zip(evaluation.inputs.numpy(), evaluation._labels, strict=True)
    ]


def test_split_is_disjoint_and_complete() -> None:
    task = Digits(train=500)
    splits = task.splits()
    train, test = rows(splits["train"]), rows(splits["test"])
    images, labels = load_digits()
    everything = [image.tobytes() + bytes([label]) for image, label in zip(images, labels, strict=True)]
    assert len(set(everything)) == 1797, "no image occurs twice, so that equality of rows tells images apart"
    assert len(train) == task.num_data == 500 and len(test) == 1297
    assert not set(train) & set(test) and torch.equal(task.source.inputs, splits["train"].inputs)
    assert sorted(train + test) == sorted(everything)


def test_a_held_out_share_comes_from_the_training_images_and_leaves_the_test_images_alone() -> None:
    whole, task = Digits(train=500), Digits(train=500, val_split=0.2)
    splits = task.splits()
    train, val = rows(splits["train"]), rows(splits["val"])
    assert (task.num_data, len(train), len(val)) == (400, 400, 100) and "val" not in whole.splits()
    assert not set(train) & set(val) and sorted(train + val) == sorted(rows(whole.splits()["train"]))
    assert rows(splits["test"]) == rows(whole.splits()["test"])
    assert torch.equal(task.source.inputs, splits["train"].inputs)  # type: ignore[attr-defined]
    shares = np.bincount(whole.source.targets.numpy()) / 5 - np.bincount(splits["val"]._labels)
    assert np.abs(shares).max() < 1
    assert task.settings()["val_split"] == 100
    assert len({task.fingerprint, whole.fingerprint, Digits(train=500, val_split=99).fingerprint}) == 3
    assert "val_split" not in whole.settings()


def test_fingerprints_change_with_the_split_only() -> None:
    base = Digits(train=500)
    assert base.fingerprint == Digits(train=500, hidden=(5,)).fingerprint
    others = {Digits(train=500, split_seed=1).fingerprint, Digits(train=501).fingerprint}
    assert len(others | {base.fingerprint}) == 3
    prints = [s.fingerprint for seed in (0, 1, 0) for s in Digits(train=500, split_seed=seed).splits().values()]
    assert len(set(prints)) == 4 and prints[:2] == prints[4:]


def test_backward_is_the_gradient_of_the_mean_cross_entropy() -> None:
    task = Digits(train=60, hidden=(5,))
    model = task.build_model(seed=0, lanes=1)
    batch = task.epoch(seed=0, batch_size=20)[1]
    loss = task.backward(model, batch, torch.Generator())
    train = task.splits()["train"]
    assert isinstance(train, Classification) and loss is not None and not loss.requires_grad
    log_p = nn.functional.log_softmax(model(train.inputs[batch]), dim=1)
    labels = torch.from_numpy(train._labels)[batch]
    expected = -log_p[torch.arange(20), labels].mean()
    torch.testing.assert_close(loss, expected.detach())
    for p, gradient in zip(model.parameters(), torch.autograd.grad(expected, list(model.parameters())), strict=True):
        torch.testing.assert_close(p.grad, gradient)


def test_new_settings_are_left_out_where_they_change_nothing() -> None:
    plain = Digits()
    assert plain.settings() == {"train": 500, "split_seed": 0, "hidden": [100, 100]} == Digits(augment=False).settings()
    assert plain.named_network() == {"name": "mlp", "settings": {"inputs": 64, "hidden": [100, 100], "outputs": 10}}
    other = Digits(norm="frn", augment=True)
    assert other.settings() == {**plain.settings(), "norm": "frn", "augment": True}
    assert other.fingerprint == plain.fingerprint


@pytest.mark.parametrize(("norm", "layers"), [("batch", 2), ("frn", 0), (None, 0)])
def test_norm_chooses_the_network(norm: str | None, layers: int) -> None:
    task = Digits(train=60, norm=norm)
    model = task.build_model(seed=0, lanes=1)
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == layers
    loss = task.backward(model, torch.arange(20), torch.Generator())
    assert loss is not None and all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    block = task.splits()["test"].predict(model.state_dict(), 0)
    assert block.shape == (1000, 10) and np.allclose(np.exp(block.astype(float)).sum(1), 1, atol=1e-5)


class Seen(nn.Module):
    """Remembers what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 10))
        self.inputs: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inputs.append(x)
        return x @ self.weight


def test_augmentation_shifts_each_image_by_at_most_one_pixel() -> None:
    """Every of the nine shifts comes as often as the others: 4,500 fair draws deviate by less than 5 sd of 20."""
    task, batch = Digits(train=500, augment=True), torch.arange(500)
    model, generator = Seen(), torch.Generator().manual_seed(3)
    count = np.zeros(9, dtype=int)
    images = task.inputs(batch).view(500, 8, 8)
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    shifts = torch.stack([padded[:, a : a + 8, b : b + 8] for a in range(3) for b in range(3)]).flatten(2)
    for _ in range(9):
        task.backward(model, batch, generator)
        equal = (shifts == model.inputs[-1]).all(dim=2)
        assert equal.any(0).all()
        count += np.bincount(equal.int().argmax(0).numpy(), minlength=9)
    assert np.abs(count - 500).max() < 5 * np.sqrt(4500 * 8 / 81)
    again = Seen()
    task.backward(again, batch, torch.Generator().manual_seed(3))
    assert torch.equal(again.inputs[0], model.inputs[0]) and not torch.equal(model.inputs[0], model.inputs[1])
    train: Any = task.splits()["train"]
    assert torch.equal(train.inputs, task._images[:500])
    plain, before = Seen(), generator.get_state()
    Digits(train=500).backward(plain, batch, generator)
    assert torch.equal(plain.inputs[0], task.inputs(batch))
    assert torch.equal(generator.get_state(), before), "nothing is drawn where nothing is augmented"
