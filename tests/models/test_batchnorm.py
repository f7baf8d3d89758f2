"""Re-estimated BatchNorm statistics are the data's exact moments, and nothing else of the model changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from raychains.models.batchnorm import has_batchnorm, reestimate
from tests.checks import refused


def network() -> nn.Sequential:
    """BatchNorm on the input and on a convolution's output, with unlike momenta and statistics from elsewhere."""
    layers = [nn.BatchNorm2d(3, momentum=0.3), nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, momentum=None), nn.Flatten()]
    model = nn.Sequential(*layers).double()
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.fill_(7.0)  # type: ignore[union-attr]
            layer.running_var.fill_(9.0)  # type: ignore[union-attr]
    return model


def data(n: int = 60) -> Tensor:
    x = torch.randn(n, 3, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x * torch.tensor([1.0, 2.0, 5.0]).view(3, 1, 1) + torch.tensor([0.0, -3.0, 4.0]).view(3, 1, 1)


def close(a: Tensor | None, b: Tensor) -> None:
    assert a is not None
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_statistics_become_the_datas_exact_moments() -> None:
    model, x = network(), data()
    reestimate(model, [x])
    close(model[0].running_mean, x.mean(dim=(0, 2, 3)))
    close(model[0].running_var, x.var(dim=(0, 2, 3)))
    biased = x.var(dim=(0, 2, 3), correction=0).view(3, 1, 1)  # what normalises in training mode
    h = model[1]((x - x.mean(dim=(0, 2, 3)).view(3, 1, 1)) / (biased + model[0].eps).sqrt()).detach()
    close(model[2].running_mean, h.mean(dim=(0, 2, 3)))
    close(model[2].running_var, h.var(dim=(0, 2, 3)))


def test_several_batches_count_alike() -> None:
    model, batches = network(), list(data().split(20))
    reestimate(model, iter(batches))
    close(model[0].running_mean, data().mean(dim=(0, 2, 3)))
    close(model[0].running_var, torch.stack([b.var(dim=(0, 2, 3)) for b in batches]).mean(0))


def test_parameters_modes_momenta_and_gradients_stay() -> None:
    model = network()
    model.train()
    model[2].eval()  # a frozen layer in a training model
    before = [p.clone() for p in model.parameters()]
    reestimate(model, [data()])
    assert [m.training for m in model.modules()] == [True, True, True, False, True]
    assert (model[0].momentum, model[2].momentum) == (0.3, None)
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, model.parameters(), strict=True))
    model.eval()
    reestimate(model, [data()])
    assert not any(m.training for m in model.modules())


def test_modes_and_momenta_stay_when_the_inputs_fail() -> None:
    def failing() -> Iterator[Tensor]:
        yield data()
        raise OSError("disk")

    model = network().eval()
    with pytest.raises(OSError, match="disk"):
        reestimate(model, failing())
    assert not any(m.training for m in model.modules()) and model[0].momentum == 0.3


def test_no_batch_is_refused_and_a_model_without_batchnorm_left_alone() -> None:
    with refused("inputs", "0"):
        reestimate(network(), [])
    unread = iter([data()])
    reestimate(nn.Linear(2, 2), unread)
    assert len(list(unread)) == 1


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))), True),
        (nn.SyncBatchNorm(2), True),
        (nn.Sequential(nn.GroupNorm(1, 2), nn.InstanceNorm2d(2), nn.LayerNorm(2)), False),
    ],
)
def test_has_batchnorm(model: nn.Module, expected: bool) -> None:
    assert has_batchnorm(model) is expected
