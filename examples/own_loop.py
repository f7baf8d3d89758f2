"""The samplers in a training loop of your own: plain PyTorch, and the same loop under Lightning Fabric.

    python examples/own_loop.py

A sampler is a torch optimizer: give it gradients of the mean minibatch loss. Both loops end in the same parameters, to
the last bit. The second part needs ``pip install lightning-fabric``.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import raychains as rc

N, BATCH = 500, 50
generator = torch.Generator().manual_seed(0)
X = torch.randn(N, 4, generator=generator)
Y = (X @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.3 * torch.randn(N, generator=generator)).unsqueeze(1)
X_TEST = torch.linspace(-2, 2, 5).unsqueeze(1).repeat(1, 4)
NOISE = 0.3


def make() -> tuple[nn.Module, rc.SGHMC, rc.Cyclical]:
    """A fresh network, its sampler and the schedule of its step size."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    sampler = rc.SGHMC(
        model.parameters(), lr=0.002, momentum=0.9, num_data=N, temperature=1.0, weight_decay=1 / N, seed=2
    )
    return model, sampler, rc.Cyclical(lr=0.002, steps=800, cycles=4, exploration=0.5, samples_per_cycle=5, thinning=10)


def loss_of(output: Tensor, target: Tensor) -> Tensor:
    """Mean negative log-likelihood under Gaussian noise, but for its constant."""
    return 0.5 * ((output - target) / NOISE).square().mean()


def loop(
    model: nn.Module, sampler: torch.optim.Optimizer, schedule: rc.Cyclical, backward: Callable[[Tensor], object]
) -> list[dict[str, Tensor]]:
    """Sample; ``backward`` is what fills the gradients. The samples are state dicts."""
    order = torch.Generator().manual_seed(3)
    samples = []
    for step in range(1, schedule.steps + 1):
        now = schedule.at(step)
        sampler.param_groups[0].update(lr=now.lr, temperature=now.temperature)
        batch = torch.randint(0, N, (BATCH,), generator=order)
        sampler.zero_grad()
        backward(loss_of(model(X[batch]), Y[batch]))
        sampler.step()
        if now.keep:
            samples.append({name: value.clone() for name, value in model.state_dict().items()})
    return samples


def plain() -> list[dict[str, Tensor]]:
    """PyTorch alone."""
    model, sampler, schedule = make()
    return loop(model, sampler, schedule, lambda loss: loss.backward())


def under_fabric() -> list[dict[str, Tensor]]:
    """The same with Lightning Fabric around model, sampler and backward pass."""
    from lightning_fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model, sampler, schedule = make()
    model, sampler = fabric.setup(model, sampler)
    return loop(model, sampler, schedule, fabric.backward)


def predict(samples: list[dict[str, Tensor]]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation, noise included, of the averaged prediction at ``X_TEST``."""
    model, _, _ = make()
    with torch.no_grad():
        outputs = torch.stack([torch.func.functional_call(model, sample, X_TEST) for sample in samples])
    return outputs.mean(0), (outputs.var(0, correction=0) + NOISE**2).sqrt()


def main() -> None:
    samples = plain()
    mean, std = predict(samples)
    print(f"plain loop: {len(samples)} samples; prediction at x = (t, t, t, t):")
    for t, m, s in zip(X_TEST[:, 0].tolist(), mean[:, 0].tolist(), std[:, 0].tolist(), strict=True):
        print(f"  t = {t:+.0f}: {m:+.2f} ± {s:.2f}")
    try:
        others = under_fabric()
    except ModuleNotFoundError as error:
        print(f"Lightning Fabric is missing ({error.name}): pip install lightning-fabric")
        return
    same = all(torch.equal(a[name], b[name]) for a, b in zip(samples, others, strict=True) for name in a)
    print(f"Lightning Fabric: {len(others)} samples, {'equal to the plain loop bit for bit' if same else 'DIFFERENT'}")
    assert same


if __name__ == "__main__":
    main()
