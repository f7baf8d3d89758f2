"""Image classification: MNIST, Fashion-MNIST and CIFAR under the networks that the papers sample.

Images stay bytes on the chain's device; crop, flip and normalisation are one vectorised step per batch there.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains import models
from raychains.data import corrupted, declared, sets
from raychains.data.augment import crop_and_flip, normalise
from raychains.data.order import EpochOrder
from raychains.data.source import Resident
from raychains.errors import UserError, require
from raychains.evaluation.base import Array, Evaluation
from raychains.evaluation.classification import Classification
from raychains.evaluation.out_of_distribution import OutOfDistribution
from raychains.priors import resnet_plus_prior
from raychains.tasks.base import Task, seeded
from raychains.tasks.splits import LazySplits, divide, is_int, sizes

MOST_WEIGHTS, MOST_LAYERS = 100_000_000, 100
DEEPEST, WIDEST = 200, 256
PADDING = 4
"""Zeros around an image before the random crop, as in every CIFAR paper."""
SEVERITIES = range(1, 6)


class ImageTask(Task):
    """Base of the image tasks: a data set, a network, a share held out, and what else draws can be evaluated on.

    Splits: ``test`` is the published one and is read only when asked for; ``train`` is what is learned from, without
    augmentation; ``val`` is what ``val_split`` holds out; ``ood:NAME`` is another set's published test images, without
    labels; ``corrupted:KIND:SEVERITY`` is CIFAR-10-C.

    Args:
        train_subset: how many training images are used, chosen with each class's share kept; default all.
        val_split: of those, the share (below 1) or number that is held out as the split ``val``, classes kept likewise.
        split_seed: seed of both choices, which depend on the images and not on their order in the file.
        augment: crop at random from the image padded by 4 and mirror half of them; default as the set's papers have it.

    Raises:
        UserError: a setting out of range, or data that are not there.
    """

    dataset: ClassVar[str]
    augmented: ClassVar[bool] = False
    """Whether images are augmented where the person says nothing."""
    companions: ClassVar[tuple[str, ...]] = ()
    """Sets of images of the same shape that show something else."""
    has_corruptions: ClassVar[bool] = False
    """Whether CIFAR-10-C holds corruptions of the test images."""
    cpu_format: ClassVar[torch.memory_format] = torch.contiguous_format
    """The faster layout on a CPU."""
    gpu_format: ClassVar[torch.memory_format] = torch.contiguous_format
    """The faster layout on a GPU."""

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
    ) -> None:
        require(is_int(split_seed) and split_seed >= 0, "split_seed", split_seed, "be an integer of at least 0")
        require(augment is None or isinstance(augment, bool), "augment", augment, "be true or false")
        data = self.read("train")
        wanted = sizes(len(data), train_subset, val_split)
        self.train_subset = wanted.used if wanted.used < len(data) else None
        self.val_split, self.split_seed = wanted.val, split_seed
        self.augment = self.augmented if augment is None else augment
        self.num_data, self.classes = wanted.train, data.classes
        self.mean, self.std = sets.statistics(self.dataset)
        chosen = [data.fingerprint, self._choice()]
        self.fingerprint = hashlib.sha256(json.dumps(chosen).encode()).hexdigest() if chosen[1] else data.fingerprint
        parts = divide(data.images.numpy(), data.labels.numpy(), wanted, split_seed)
        self._train, self._val = _part(data, parts.train), _part(data, parts.val)
        self.data_notes = (declared.NOTE.format(name=self.dataset),) if data.stand_in else ()
        self._data = data  # others who load it in this process share it as long as it is held
        self._source = Resident(*self._train)
        self.memory_format = self.cpu_format

    def read(self, split: str) -> sets.ImageSet:
        """The images of ``train`` or ``test``: those of the task's data set."""
        return sets.load(self.dataset, split)

    def _choice(self) -> dict[str, Any]:
        """The settings that choose training images; empty when all are used."""
        chosen: dict[str, Any] = {"train_subset": self.train_subset} if self.train_subset is not None else {}
        chosen |= {"val_split": self.val_split} if self.val_split else {}
        return chosen | {"split_seed": self.split_seed} if chosen else {}

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults; ``val_split`` as a number of images."""
        return self._choice() | ({"augment": self.augment} if self.augment != self.augmented else {})

    @abstractmethod
    def named_network(self) -> dict[str, Any]: ...

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        network = self.named_network()
        with seeded(seed):
            return models.build(network["name"], **network["settings"])

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Any]:
        order = EpochOrder(self.num_data, batch_size, seed).to(self._source.inputs.device)
        self._source.follow(order)
        return order

    def loss(self, model: nn.Module, batch: Any, generator: torch.Generator) -> Tensor:
        images, labels = self._source.batch(batch)
        if self.augment:
            images = crop_and_flip(images, generator, padding=PADDING)
        dtype = next(model.parameters()).dtype
        inputs = normalise(images, self.mean, self.std, dtype, memory_format=self.memory_format)
        return F.cross_entropy(model(inputs), labels)

    def inputs(self, batch: Any) -> Tensor:
        return self.prepare(self._source.batch(batch)[0])

    def prepare(self, inputs: Tensor) -> Tensor:
        """(bytes/255 − mean)/std per channel, float32, from uint8 images [n, channels, height, width].

        Raises:
            UserError: other inputs.
        """
        shape = (len(self.mean), *self._data.images.shape[2:])
        ok = inputs.dtype == torch.uint8 and tuple(inputs.shape[1:]) == shape
        if not ok:
            raise UserError(
                f"images must be bytes (uint8) of shape [n, {', '.join(map(str, shape))}], got "
                f"{str(inputs.dtype).removeprefix('torch.')} of shape {list(inputs.shape)}"
            )
        layout = self.gpu_format if inputs.device.type == "cuda" else self.cpu_format
        return normalise(inputs, self.mean, self.std, memory_format=layout)

    def preparation(self) -> dict[str, Any]:
        return {"kind": "normalise", "mean": list(self.mean), "std": list(self.std)}

    def to(self, device: torch.device) -> None:
        self._source = self._source.to(device)
        self.memory_format = self.gpu_format if device.type == "cuda" else self.cpu_format

    def splits(self) -> Mapping[str, Evaluation]:
        return self._splits

    @cached_property
    def _splits(self) -> Mapping[str, Evaluation]:
        makers: dict[str, Callable[[], Evaluation]] = {
            "test": lambda: self._labelled(self.read("test")),
            "train": lambda: self._classification(*self._train),
        }
        if self.val_split:
            makers["val"] = lambda: self._classification(*self._val)
        for name in self.companions:
            makers[f"ood:{name}"] = partial(self._out_of_distribution, name)
        if self.has_corruptions:
            for kind, severity in itertools.product(corrupted.CORRUPTIONS, SEVERITIES):
                makers[f"corrupted:{kind}:{severity}"] = partial(self._corruption, kind, severity)
        return LazySplits(makers)

    def _labelled(self, data: sets.ImageSet) -> Evaluation:
        return self._classification(data.images, data.labels)

    def _corruption(self, kind: str, severity: int) -> Evaluation:
        return self._labelled(corrupted.corrupted("cifar10-c", kind, severity))

    def _classification(self, images: Tensor, labels: Tensor) -> Evaluation:
        return Classification(inputs=images, labels=labels.numpy(), classes=self.classes, **self._predicting())

    def _out_of_distribution(self, name: str) -> Evaluation:
        return OutOfDistribution(inputs=sets.load(name, "test").images, **self._predicting())

    def _predicting(self) -> dict[str, Any]:
        return {"model": self._evaluated_model, "prepare": self.prepare, "preparation": self.preparation()}

    @cached_property
    def _evaluated_model(self) -> nn.Module:
        return self.build_model(seed=0, lanes=1)


class MnistMlp(ImageTask):
    """MNIST, 28×28 grey digits, 60,000 to learn from, under a ReLU network with two hidden layers.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default no.
        hidden: widths of the hidden layers.
    """

    dataset = "mnist"
    companions = ("notmnist", "fashion-mnist")

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        hidden: Sequence[int] = (400, 400),
    ) -> None:
        ok = isinstance(hidden, list | tuple) and all(is_int(width) and width >= 1 for width in hidden)
        require(ok, "hidden", hidden, "be a list of integers of at least 1: the widths of the hidden layers")
        weights = sum(a * b for a, b in itertools.pairwise((784, *hidden, 10)))
        allowed = f"give at most {MOST_WEIGHTS} weights"
        require(len(hidden) <= MOST_LAYERS and weights <= MOST_WEIGHTS, "hidden", hidden, allowed)
        self.hidden = tuple(hidden)
        super().__init__(train_subset, val_split, split_seed, augment)

    def settings(self) -> dict[str, Any]:
        return super().settings() | ({"hidden": list(self.hidden)} if self.hidden != (400, 400) else {})

    def named_network(self) -> dict[str, Any]:
        settings = {"inputs": self._data.images[0].numel(), "hidden": list(self.hidden), "outputs": self.classes}
        return {"name": "mlp", "settings": settings}


class FashionMnistMlp(MnistMlp):
    """Fashion-MNIST, 28×28 grey images of clothes in 10 classes, under the network of `MnistMlp`."""

    dataset = "fashion-mnist"
    companions = ("mnist", "notmnist")


class MnistCnn(ImageTask):
    """MNIST under a LeNet: two convolutions, three linear layers, 44,426 parameters."""

    dataset = "mnist"
    companions = MnistMlp.companions
    gpu_format = torch.channels_last

    def named_network(self) -> dict[str, Any]:
        settings = {"in_channels": 1, "classes": self.classes, "size": self._data.images.shape[-1]}
        return {"name": "lenet", "settings": settings}


class Cifar10Task(ImageTask):
    """Base of the tasks on CIFAR-10: 32×32 colour images, 50,000 to learn from, cropped and mirrored."""

    dataset = "cifar10"
    augmented = True
    companions = ("svhn", "cifar100")
    has_corruptions = True
    gpu_format = torch.channels_last


class Cifar10ResNet18(Cifar10Task):
    """CIFAR-10, 32×32 colour images, 50,000 to learn from, under ResNet-18 with BatchNorm: cSG-MCMC §5.2."""

    norm: ClassVar[str] = "batch"

    def named_network(self) -> dict[str, Any]:
        settings = {"classes": self.classes, "norm": self.norm}
        return {"name": "resnet18", "settings": settings}


class Cifar100ResNet18(Cifar10ResNet18):
    """CIFAR-100, 32×32 colour images in 100 classes, 50,000 to learn from, under ResNet-18 with BatchNorm."""

    dataset = "cifar100"
    companions = ("svhn", "cifar10")
    has_corruptions = False


class Cifar10ResNet18Frn(Cifar10ResNet18):
    """CIFAR-10 under ResNet-18 with filter response normalisation: nothing depends on the batch, samples have no buffers."""

    norm = "frn"


class Cifar10ResNet20(Cifar10Task):
    """CIFAR-10 under He et al.'s thin ResNet of depth 20 with BatchNorm, 269,722 parameters: for machines without a GPU.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default yes.
        depth: 6n + 2.
        width: channels of the first of three stages. Depth 56 and width 32 are ATMC's network with BatchNorm.
    """

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        depth: int = 20,
        width: int = 16,
    ) -> None:
        ok = is_int(depth) and 8 <= depth <= DEEPEST and depth % 6 == 2
        require(ok, "depth", depth, f"be 6n + 2 in [8, {DEEPEST}]")
        require(is_int(width) and 1 <= width <= WIDEST, "width", width, f"be an integer in [1, {WIDEST}]")
        self.depth, self.width = depth, width
        super().__init__(train_subset, val_split, split_seed, augment)

    def settings(self) -> dict[str, Any]:
        own = {"depth": (self.depth, 20), "width": (self.width, 16)}
        return super().settings() | {n: value for n, (value, default) in own.items() if value != default}

    def named_network(self) -> dict[str, Any]:
        wide = {"width": self.width} if self.width != 16 else {}
        return {"name": "resnet_thin", "settings": {"depth": self.depth, "classes": self.classes, **wide}}


class Cifar10LeNet(Cifar10Task):
    """CIFAR-10 under a LeNet of 62,006 parameters without BatchNorm: for machines without a GPU."""

    def named_network(self) -> dict[str, Any]:
        settings = {"in_channels": 3, "classes": self.classes, "size": self._data.images.shape[-1]}
        return {"name": "lenet", "settings": settings}


class Cifar100LeNet(Cifar10LeNet):
    """CIFAR-100 under a LeNet of 69,656 parameters without BatchNorm."""

    dataset = "cifar100"
    companions = ("svhn", "cifar10")
    has_corruptions = False


class Cifar10ResNetPlus(Cifar10Task):
    """CIFAR-10 under ResNet++ of depth 56 with its own prior, as Heek & Kalchbrenner 2019 sample it.

    The prior is `raychains.priors.resnet_plus_prior`, so weight decay must be 0.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default yes.
        depth: 6n + 2.
        width: channels of the first of three stages.
        prior_scale: of the group Laplace on the scales.
        prior_std: of the directions' lengths around 1.
        prior_bias_std: of the biases.
    """

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        depth: int = 56,
        width: int = 32,
        prior_scale: float = 1.0,
        prior_std: float = 0.01,
        prior_bias_std: float = 1.0,
    ) -> None:
        ok = is_int(depth) and 8 <= depth <= DEEPEST and depth % 6 == 2 and depth != 50
        require(ok, "depth", depth, f"be 6n + 2 in [8, {DEEPEST}] and not 50: that is the network for ImageNet")
        require(is_int(width) and 1 <= width <= WIDEST, "width", width, f"be an integer in [1, {WIDEST}]")
        self.depth, self.width = depth, width
        self.prior = resnet_plus_prior(scale=prior_scale, std=prior_std, bias_std=prior_bias_std)
        self._own = {
            "depth": depth, "width": width, "prior_scale": float(prior_scale), "prior_std": float(prior_std),
            "prior_bias_std": float(prior_bias_std),
        }  # fmt: skip
        super().__init__(train_subset, val_split, split_seed, augment)

    def settings(self) -> dict[str, Any]:
        parameters = inspect.signature(type(self)).parameters
        return super().settings() | {n: v for n, v in self._own.items() if v != parameters[n].default}

    def named_network(self) -> dict[str, Any]:
        settings = {"depth": self.depth, "classes": self.classes, "width": self.width}
        return {"name": "resnet_plus", "settings": settings}


def _part(data: sets.ImageSet, chosen: Array) -> tuple[Tensor, Tensor]:
    """Images and labels at positions, ascending; without a copy where that is all of them."""
    if len(chosen) == len(data):
        return data.images, data.labels
    at = torch.from_numpy(chosen)
    return data.images[at], data.labels[at]
