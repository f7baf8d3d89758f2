"""Training loops that benchmarks/chain.py sets against each other: a chain, the plain one of published code, single
steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from raychains import samplers
from raychains.chain.chain import Chain
from raychains.core.spec import ChainSpec, Part
from raychains.schedules import Constant
from raychains.tasks.images import ImageTask

LR, MOMENTUM, DECAY = 0.01, 0.9, 5e-4


def chain(task: ImageTask, *, device: str, **settings: Any) -> Chain:
    """The chain of `spec` on a device."""
    return Chain(spec(task, **settings), task, device=device)


def spec(task: ImageTask, *, batch: int, epochs: int, temperature: float, **execution: Any) -> ChainSpec:
    """SGHMC with noise in every step that keeps one sample, its last; ``execution`` are fields of ChainSpec."""
    per_epoch = -(-task.num_data // batch)
    steps = epochs * per_epoch
    kind = samplers.SGHMC
    settings = {"momentum": MOMENTUM, "num_data": task.num_data, "weight_decay": DECAY}
    return ChainSpec(
        task=task.spec(), sampler=Part(kind=kind.kind, revision=kind.revision, settings=settings),
        schedule=Constant(lr=LR, steps=steps, samples=1, temperature=temperature).part(),
        steps=steps, steps_per_epoch=per_epoch, batch_size=batch, seed=0, repeat=0, chain=0, **execution,
    )  # fmt: skip


class Plain:
    """SGHMC as the published code of cSG-MCMC writes it: a Python loop over parameters with new tensors in every
    line."""

    def __init__(self, params: Iterable[Tensor], num_data: int) -> None:
        self.params = list(params)
        self.buffers = [torch.zeros_like(p) for p in self.params]
        self.std = math.sqrt(2 * (1 - MOMENTUM) * LR / num_data)

    def zero_grad(self) -> None:
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for i, p in enumerate(self.params):
            assert p.grad is not None
            p.grad.add_(p, alpha=DECAY)
            new = MOMENTUM * self.buffers[i] - LR * p.grad
            new += self.std * torch.randn(p.size(), device=p.device)
            p.add_(new)
            self.buffers[i] = new


class Pictures(Dataset[Any]):
    """A data set as torchvision serves it: a PIL image through transforms, one at a time."""

    def __init__(self, task: ImageTask) -> None:
        data = task.read("train")
        grey = data.images.shape[1] == 1
        self.images = data.images[:, 0].numpy() if grey else data.images.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = data.labels.tolist()
        size = data.images.shape[-1]
        crop = [transforms.RandomCrop(size, padding=4), transforms.RandomHorizontalFlip()] if task.augment else []
        self.transform = transforms.Compose([*crop, transforms.ToTensor(), transforms.Normalize(task.mean, task.std)])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def plain_epochs(task: ImageTask, *, batch: int, device: str, workers: int, images: int | None) -> Iterator[None]:
    """Epochs of the plain loop, one per ``next``; with ``images`` only about so many of each."""
    model = task.build_model(seed=0, lanes=1).to(device)
    update = Plain(model.parameters(), task.num_data)
    loader = DataLoader(
        Pictures(task), batch_size=batch, shuffle=True, num_workers=workers, pin_memory=device != "cpu",
        persistent_workers=workers > 0,
    )  # fmt: skip
    while True:
        for inputs, labels in itertools.islice(loader, None if images is None else -(-images // batch)):
            update.zero_grad()
            inputs, labels = inputs.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            F.cross_entropy(model(inputs), labels).backward()
            update.step()
        yield


def training_steps(task: ImageTask, batch: int, device: str) -> dict[str, Callable[[], None]]:
    """One training step on a batch that lies ready, by what makes the update; "none" only takes the gradient."""
    images, labels = (t[:batch].to(device) for t in (task.read("train").images, task.read("train").labels))
    inputs = task.prepare(images)

    def step(make: Callable[[list[nn.Parameter]], Any] | None) -> Callable[[], None]:
        model = task.build_model(seed=0, lanes=1).to(device)
        params = list(model.parameters())
        update = make(params) if make is not None else None

        def one() -> None:
            for p in params:
                p.grad = None
            F.cross_entropy(model(inputs), labels).backward()
            if update is not None:
                update.step()

        return one

    rest = {"lr": LR, "momentum": MOMENTUM, "weight_decay": DECAY}
    n = task.num_data
    return {
        "torch.optim.SGD": step(lambda p: torch.optim.SGD(p, **rest)),
        "SGHMC without noise": step(lambda p: samplers.SGHMC(p, num_data=n, temperature=0.0, seed=0, **rest)),
        "SGHMC with noise": step(lambda p: samplers.SGHMC(p, num_data=n, seed=0, **rest)),
        "plain Python SGHMC with noise": step(lambda p: Plain(p, n)),
        "none": step(None),
    }
