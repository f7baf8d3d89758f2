"""Image classification: MNIST, Fashion-MNIST and CIFAR under the networks that the papers sample.

A task is a data set (`ImageData`) and a network; the classes at the end are that table. Images stay bytes on the
chain's device; crop, flip and normalisation are one vectorised step per batch there.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.core import gpus
from raychains.core.data_root import data_root
from raychains.core.errors import UserError, require
from raychains.core.validation import integer, is_int, positive
from raychains.data import cifar10_c, sets, standin_manifest
from raychains.data.augment import crop_and_flip, normalise
from raychains.data.source import Resident
from raychains.evaluation.classification import Classification, OutOfDistribution
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.priors import Gaussian, resnet_plus_prior
from raychains.tasks.base import PredictiveTask
from raychains.tasks.defaults import LATE, SMALL, Defaults, network_rates
from raychains.tasks.likelihoods import Classes
from raychains.tasks.splits import LazySplits, check_hidden, divide, sizes

DEEPEST, WIDEST = 200, 256
PADDING = 4
"""Zeros around an image before the random crop, as in every CIFAR paper."""


@dataclass(frozen=True, kw_only=True)
class ImageData:
    """A data set and what its papers do with it."""

    name: str
    augmented: bool = False
    """The default of ``augment``."""
    companions: tuple[str, ...] = ()
    """Sets of images of the same shape that show something else: the splits ``ood:NAME``."""
    has_corruptions: bool = False
    """True if CIFAR-10-C holds corruptions of the test images."""
    reference: str = ""
    """File below the data root with probabilities of the test images, in their order, by full-batch HMC."""


class NormalisedPictures(PredictiveTask):
    """Base of the classifications of byte images that are normalised per channel, by ``mean`` and ``std``."""

    likelihood = Classes()
    mean: Sequence[float]
    std: Sequence[float]
    shape: tuple[int, ...]
    """[channels, height, width] of an image."""
    gpu_format: ClassVar[torch.memory_format] = torch.channels_last
    """The faster layout on a GPU; on a CPU contiguous images are as fast."""

    def network_inputs(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        return normalise(inputs, self.mean, self.std, dtype, memory_format=self.memory_format)

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return (bytes/255 − mean)/std per channel, float32, from uint8 images [n, channels, height, width].

        Raises:
            UserError: other inputs.
        """
        if inputs.dtype != torch.uint8 or tuple(inputs.shape[1:]) != self.shape:
            raise UserError(
                f"images must be bytes (uint8) of shape [n, {', '.join(map(str, self.shape))}], got "
                f"{str(inputs.dtype).removeprefix('torch.')} of shape {list(inputs.shape)}"
            )
        return normalise(inputs, self.mean, self.std, memory_format=self._layout(inputs.device))

    def preparation(self) -> dict[str, Any]:
        return {"kind": "normalise", "mean": list(self.mean), "std": list(self.std)}

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.memory_format = self._layout(device)

    def _layout(self, device: torch.device) -> torch.memory_format:
        return self.gpu_format if gpus.is_gpu(device) else torch.contiguous_format

    def splits(self) -> Mapping[str, Evaluation]:
        return self._splits

    @cached_property
    def _splits(self) -> Mapping[str, Evaluation]:
        return LazySplits(self.split_makers())

    @abstractmethod
    def split_makers(self) -> dict[str, Callable[[], Evaluation]]:
        """Return the functions that read each split, by its name."""

    def predicting(self) -> dict[str, Any]:
        """Return what evaluations of images are built with."""
        return {"model": self.evaluated_model, "prepare": self.prepare, "preparation": self.preparation()}


class ImageTask(NormalisedPictures):
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

    data: ClassVar[ImageData]
    source: Resident
    network: Mapping[str, Any] = MappingProxyType({})
    """The network's arguments of the constructor, in the spec where they differ from their defaults; set before
    `__init__`."""

    def __init__(
        self, train_subset: int | None = None, val_split: float = 0.0, split_seed: int = 0, augment: bool | None = None
    ) -> None:
        integer("split_seed", split_seed)
        require(augment is None or isinstance(augment, bool), "augment", augment, "be true or false")
        data = self.read("train")
        chosen = sizes(len(data), train_subset, val_split)
        self.train_subset = chosen.used if chosen.used < len(data) else None
        self.val_split, self.split_seed = chosen.val, split_seed
        self.augment = self.data.augmented if augment is None else augment
        self.num_data, self.classes = chosen.train, data.classes
        self.mean, self.std = sets.statistics(self.data.name)
        self.shape = tuple(data.images.shape[1:])
        choice = self._choice()
        self.fingerprint = data.fingerprint
        if choice:
            self.fingerprint = hashlib.sha256(json.dumps([data.fingerprint, choice]).encode()).hexdigest()
        parts = divide(data.images.numpy(), data.labels.numpy(), chosen, split_seed)
        self._train, self._val = _part(data, parts.train), _part(data, parts.val)
        self.data_notes = (standin_manifest.NOTE.format(name=self.data.name),) if data.stand_in else ()
        self._data = data  # others who load it in this process share it as long as it is held
        self.source = Resident(*self._train)

    def reference_file(self, split: str) -> Path | None:
        file = data_root() / self.data.reference if self.data.reference and split == "test" else None
        return file if file is not None and file.is_file() else None

    def read(self, split: str) -> sets.ImageSet:
        """Return the images of ``train`` or ``test``: those of the task's data set."""
        return sets.load(self.data.name, split)

    def _choice(self) -> dict[str, Any]:
        """Return the settings that choose training images; empty when all are used."""
        chosen: dict[str, Any] = {"train_subset": self.train_subset} if self.train_subset is not None else {}
        chosen |= {"val_split": self.val_split} if self.val_split else {}
        return chosen | {"split_seed": self.split_seed} if chosen else {}

    def settings(self) -> dict[str, Any]:
        """Return what differs from the defaults; ``val_split`` as a number of images."""
        augment = {"augment": self.augment} if self.augment != self.data.augmented else {}
        network = {n: list(v) if isinstance(v, tuple) else v for n, v in self._changed(self.network).items()}
        return self._choice() | augment | network

    def augmented(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        return crop_and_flip(inputs, generator, padding=PADDING) if self.augment else inputs

    def split_makers(self) -> dict[str, Callable[[], Evaluation]]:
        makers: dict[str, Callable[[], Evaluation]] = {
            "test": lambda: self._labelled(self.read("test")),
            "train": lambda: self._classification(*self._train),
        }
        if self.val_split:
            makers["val"] = lambda: self._classification(*self._val)
        makers |= {f"ood:{name}": partial(self._out_of_distribution, name) for name in self.data.companions}
        if self.data.has_corruptions:
            for kind, severity in itertools.product(cifar10_c.CORRUPTIONS, range(1, cifar10_c.SEVERITIES + 1)):
                makers[f"corrupted:{kind}:{severity}"] = partial(self._corruption, kind, severity)
        return makers

    def _labelled(self, data: sets.ImageSet) -> Evaluation:
        return self._classification(data.images, data.labels)

    def _corruption(self, kind: str, severity: int) -> Evaluation:
        return self._labelled(cifar10_c.corrupted(kind, severity))

    def _classification(self, images: Tensor, labels: Tensor) -> Evaluation:
        return Classification(inputs=images, labels=labels.numpy(), classes=self.classes, **self.predicting())

    def _out_of_distribution(self, name: str) -> Evaluation:
        return OutOfDistribution(inputs=sets.load(name, "test").images, **self.predicting())


def _part(data: sets.ImageSet, chosen: Array) -> tuple[Tensor, Tensor]:
    """Return images and labels at positions, ascending; without a copy where that is all of them."""
    if len(chosen) == len(data):
        return data.images, data.labels
    at = torch.from_numpy(chosen)
    return data.images[at], data.labels[at]


def check_thin(depth: int, width: int, ok: bool, allowed: str) -> None:
    """Refuse a depth or width of a residual network with three stages that is out of range."""
    require(is_int(depth) and 8 <= depth <= DEEPEST and ok, "depth", depth, f"be 6n + 2 in [8, {DEEPEST}]{allowed}")
    integer("width", width, 1, WIDEST)


# Networks


class _LeNet(ImageTask):
    def named_network(self) -> dict[str, Any]:
        settings = {"in_channels": self.shape[0], "classes": self.classes, "size": self.shape[-1]}
        return {"name": "lenet", "settings": settings}


class _ResNet18(ImageTask):
    norm: ClassVar[str] = "batch"

    def named_network(self) -> dict[str, Any]:
        return {"name": "resnet18", "settings": {"classes": self.classes, "norm": self.norm}}


# Default settings


def _mnist(lr: float) -> Defaults:
    """Small networks on 28×28 images at T = 1. Cycles of 10 epochs have 2 with noise: a sample every half epoch.

    One chain of 40 epochs of the MLP: 1.36 % with 12 samples on MNIST. Step sizes and prior are ours.
    """
    return Defaults(
        lr=network_rates(lr, sam=0.1),
        epochs=40,
        batch_size=128,
        exploration=0.8,
        samples_per_cycle=3,
        cycle_thinning=0.5,
        repeats=1,
        weight_decay=1e-4,
        non_cyclical=SMALL,
        sampler_settings={"emcmc": {"eta": 4e-4}},
        eta_for=50_000,
    )


def _cifar(data: ImageData, *, step: float = 0.5, bsam: float | None = None, bsam_rho: float = 0.01) -> Defaults:
    """cSG-MCMC §5.2 and its authors' code (momentum .1, temperature 1/50,000); Entropy-MCMC, SAM and bSAM as their
    papers.

    β of a cycle without noise, η of Entropy-MCMC and ρ of SAM are the data set's. ``step`` of other networks than
    ResNet-18 is ours, and bSAM's.
    """
    exploration, eta, rho = (0.8, 4e-4, 0.05) if data is CIFAR10 else (0.94, 8e-3, 0.1)
    # At momentum .9 as long a step as SGHMC's at .1: ours, as are those of the samplers that no paper runs here.
    lr = network_rates(step / 10, sam=step / 5, bsam=step if bsam is None else bsam)
    return Defaults(
        lr={**lr, ("cyclical", "sghmc"): step, ("decreasing", "sghmc"): step},
        epochs=200,
        batch_size=64,
        exploration=exploration,
        samples_per_cycle=3,
        repeats=1,
        weight_decay=5e-4,
        temperature=1 / 50_000,
        non_cyclical=LATE,
        sampler_settings={
            "sghmc": {"momentum": 0.1},
            "emcmc": {"eta": eta},
            "sam": {"rho": rho},
            "bsam": {"rho": bsam_rho},
        },
        eta_for=40_000,
        of_sampler={
            "emcmc": {"batch_size": 128, "temperature": 1e-4},
            "sam": {"batch_size": 128},
            "bsam": {"batch_size": 128, "weight_decay": 40 / 200_000, "temperature": 0.25},  # N = 4 × 50,000 there
        },
    )


# The table: data set × network

MNIST = ImageData(name="mnist", companions=("notmnist", "fashion-mnist"))
FASHION = ImageData(name="fashion-mnist", companions=("mnist", "notmnist"))
CIFAR10 = ImageData(
    name="cifar10",
    augmented=True,
    companions=("svhn", "cifar100"),
    has_corruptions=True,
    reference="hmc-cifar10/probabilities.npy",
)
CIFAR100 = ImageData(name="cifar100", augmented=True, companions=("svhn", "cifar10"))


class MnistMlp(ImageTask):
    """MNIST, 28×28 grey digits, 60,000 to learn from, under a ReLU network with two hidden layers.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default no.
        hidden: widths of the hidden layers.
    """

    name = "mnist-mlp"
    data, defaults, gpu_format = MNIST, _mnist(0.05), torch.contiguous_format

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        hidden: Sequence[int] = (400, 400),
    ) -> None:
        self.network = {"hidden": check_hidden(hidden, 784, 10)}
        super().__init__(train_subset, val_split, split_seed, augment)

    def named_network(self) -> dict[str, Any]:
        settings = {
            "inputs": self._data.images[0].numel(),
            "hidden": list(self.network["hidden"]),
            "outputs": self.classes,
        }
        return {"name": "mlp", "settings": settings}


class FashionMnistMlp(MnistMlp):
    """Fashion-MNIST, 28×28 grey images of clothes in 10 classes, under the network of `MnistMlp`."""

    name = "fashion-mnist-mlp"
    data, defaults = FASHION, _mnist(0.05)


class MnistCnn(_LeNet):
    """MNIST under a LeNet: two convolutions, three linear layers, 44,426 parameters."""

    name = "mnist-cnn"
    data, defaults = MNIST, _mnist(0.02)


class Cifar10ResNet18(_ResNet18):
    """CIFAR-10, 32×32 colour images, 50,000 to learn from, under ResNet-18 with BatchNorm: cSG-MCMC §5.2."""

    name = "cifar10-resnet18"
    data, defaults = CIFAR10, _cifar(CIFAR10)


class Cifar100ResNet18(_ResNet18):
    """CIFAR-100, 32×32 colour images in 100 classes, 50,000 to learn from, under ResNet-18 with BatchNorm."""

    name = "cifar100-resnet18"
    data, defaults = CIFAR100, _cifar(CIFAR100)


class Cifar10ResNet18Frn(_ResNet18):
    """CIFAR-10 under ResNet-18 with filter response normalisation: nothing depends on the batch, samples have no
    buffers."""

    name = "cifar10-resnet18-frn"
    data, defaults, norm = CIFAR10, _cifar(CIFAR10), "frn"


class Cifar10LeNet(_LeNet):
    """CIFAR-10 under a LeNet of 62,006 parameters without BatchNorm: for machines without a GPU."""

    name = "cifar10-lenet"
    # Under bSAM's own ρ of .01 and lr .1 the LeNet errs on 66 % of CIFAR-10 (5,000 images), under these on 41 %.
    data, defaults = CIFAR10, _cifar(CIFAR10, step=0.1, bsam=0.05, bsam_rho=0.001)


class Cifar100LeNet(_LeNet):
    """CIFAR-100 under a LeNet of 69,656 parameters without BatchNorm."""

    name = "cifar100-lenet"
    data, defaults = CIFAR100, _cifar(CIFAR100, step=0.1, bsam=0.05, bsam_rho=0.001)


class Cifar10ResNet20(ImageTask):
    """CIFAR-10 under He et al.'s thin ResNet of depth 20 with BatchNorm, 269,722 parameters: for machines without a
    GPU.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default yes.
        depth: 6n + 2.
        width: channels of the first of three stages. Depth 56 and width 32 are ATMC's network with BatchNorm.
    """

    name = "cifar10-resnet20"
    data, defaults = CIFAR10, _cifar(CIFAR10, step=0.2)

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        depth: int = 20,
        width: int = 16,
    ) -> None:
        check_thin(depth, width, is_int(depth) and depth % 6 == 2, "")
        self.network = {"depth": depth, "width": width}
        super().__init__(train_subset, val_split, split_seed, augment)

    def named_network(self) -> dict[str, Any]:
        own = {"depth": self.network["depth"], "classes": self.classes}
        return {"name": "resnet_thin", "settings": own | self._changed({"width": self.network["width"]})}


class Cifar10ResNet20FrnSilu(ImageTask):
    """CIFAR-10 under ResNet-20 with FRN and SiLU, 274,042 parameters, whose posterior full-batch HMC has sampled.

    The prior N(0, prior_variance·I) on all parameters is the task's own, so weight decay must be 0. Inputs are
    (x/255 − (.49, .48, .44))/.2, images are not augmented, temperature is 1: the posterior of the NeurIPS 2021
    competition on approximate inference (Izmailov et al. 2021). The measure ``fidelity`` compares with HMC's
    predictions.

    Args:
        train_subset: as for every image task.
        val_split: likewise.
        split_seed: likewise.
        augment: likewise; default no.
        prior_variance: of each parameter.
        depth: 6n + 2; HMC's is 20.
        width: channels of the first of three stages; HMC's is 16.
    """

    name = "cifar10-resnet20-frn-silu"
    data = dataclasses.replace(CIFAR10, augmented=False)
    # Step .1 at SGHMC's momentum .1 is as long as .011 at .9; Izmailov et al. run 3e-7 on the sum over 40,960: .0123.
    defaults = Defaults(
        lr={**network_rates(0.01), ("cyclical", "sghmc"): 0.1, ("decreasing", "sghmc"): 0.1},
        epochs=200,
        batch_size=64,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=1,
        non_cyclical=LATE,
        sampler_settings={"sghmc": {"momentum": 0.1}, "emcmc": {"eta": 4e-4}},
        eta_for=40_000,
    )

    def __init__(
        self,
        train_subset: int | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
        augment: bool | None = None,
        prior_variance: float = 0.2,
        depth: int = 20,
        width: int = 16,
    ) -> None:
        check_thin(depth, width, is_int(depth) and depth % 6 == 2, "")
        positive("prior_variance", prior_variance)
        self.prior = Gaussian(std=math.sqrt(prior_variance))
        self.network = {"prior_variance": float(prior_variance), "depth": depth, "width": width}
        super().__init__(train_subset, val_split, split_seed, augment)
        self.mean, self.std = (0.49, 0.48, 0.44), (0.2, 0.2, 0.2)

    def named_network(self) -> dict[str, Any]:
        own = {"depth": self.network["depth"], "classes": self.classes}
        return {"name": "resnet_frn_silu", "settings": own | self._changed({"width": self.network["width"]})}


class Cifar10ResNetPlus(ImageTask):
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

    name = "cifar10-resnetpp56"
    data = CIFAR10
    # Cycles of 50 epochs as in the paper, whose step sizes are unreadable in our text: step sizes and batch are ours.
    defaults = Defaults(
        samplers=("sgnht", "atmc"),
        run="atmc",
        lr=network_rates(0.05),
        epochs=200,
        batch_size=128,
        exploration=0.8,
        samples_per_cycle=3,
        repeats=1,
        non_cyclical=LATE,
        sampler_settings={"emcmc": {"eta": 4e-4}},
        eta_for=40_000,
    )

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
        ok = is_int(depth) and depth % 6 == 2 and depth != 50
        check_thin(depth, width, ok, " and not 50: that is the network for ImageNet")
        self.prior = resnet_plus_prior(scale=prior_scale, std=prior_std, bias_std=prior_bias_std)
        self.network = {"depth": depth, "width": width, "prior_scale": float(prior_scale)}
        self.network |= {"prior_std": float(prior_std), "prior_bias_std": float(prior_bias_std)}
        super().__init__(train_subset, val_split, split_seed, augment)

    def named_network(self) -> dict[str, Any]:
        own = {"depth": self.network["depth"], "classes": self.classes, "width": self.network["width"]}
        return {"name": "resnet_plus", "settings": own}
