"""Image sets that were prepared for streaming (ImageNet and any folder of classes) under networks of their size."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raychains import models
from raychains.data import declared
from raychains.data.augment import normalise
from raychains.data.prepared.carrier import Carry
from raychains.data.prepared.order import Part
from raychains.data.prepared.rows import manifest_at
from raychains.data.prepared.streaming import Central, Streaming
from raychains.data.root import root_of
from raychains.errors import UserError, require
from raychains.evaluation.base import Evaluation
from raychains.evaluation.classification import Classification
from raychains.priors import resnet_plus_prior
from raychains.tasks.base import Task, seeded
from raychains.tasks.splits import LazySplits, is_int

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's training images, per channel, as everybody rounds them."""
LARGEST = 1024
DEEPEST, WIDEST = 200, 256


def check_name(name: object) -> None:
    """Refuse what is not a plain name of a folder."""
    plain = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) is not None
    require(plain, "set", name, "be the name of a folder of the data root, of letters, digits, '-', '_' and '.'")


def place_of(name: str) -> str:
    """Where the prepared set of this name lies: a folder of the data root, which may be a URI here.

    Raises:
        UserError: a name that is a path, or a data root that does not exist.
    """
    check_name(name)
    return f"{root_of()}/{name}"


class Prepared(Task):
    """Classification of a prepared set's pictures: random crops and mirrors to learn from, central crops to predict.

    Splits: ``test`` is the set's ``test``, or its ``val`` where there is none, as ImageNet's papers have it; ``train`` is
    what is learned from, cropped centrally.

    Args:
        set: its folder in the data root; `raychains prepare` makes it.
        size: pixels of a side that the network sees.
        window: W, row groups whose pictures are mixed.

    Raises:
        UserError: a setting out of range, or no such set.
    """

    streams = True
    model: ClassVar[str]
    """Of `raychains.models`."""

    def __init__(self, set: str = "imagenet", size: int = 224, window: int = 16) -> None:
        require(is_int(size) and 8 <= size <= LARGEST, "size", size, f"be an integer in [8, {LARGEST}]")
        require(is_int(window) and window >= 1, "window", window, "be an integer of at least 1")
        self.set, self.size, self.window = set, size, window
        self._uri = place_of(set)
        self.manifest = manifest_at(self._uri)
        if "train" not in self.manifest.splits or len(self.manifest.splits) < 2:
            known = ", ".join(self.manifest.splits)
            raise UserError(f"set must have the splits train and val (or test), got {known} of {set!r}")
        self.classes = len(self.manifest.classes)
        if all(name.startswith(declared.CLASS) for name in self.manifest.classes):
            self.data_notes = (declared.NOTE.format(name=set),)
        self._source = Streaming(self._uri, self.manifest, "train", size, window)
        self.num_data = len(self._source)
        # The order of learning follows the row groups, so they are part of what the data are.
        self.fingerprint = self._identity()
        self.memory_format = torch.contiguous_format

    def _identity(self) -> str:
        split = self.manifest.splits["train"]
        text = f"{split.fingerprint} {self.test} {self.manifest.splits[self.test].fingerprint} {split.rows}"
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def test(self) -> str:
        """The set's split that is the task's ``test``."""
        return "test" if "test" in self.manifest.splits else "val"

    def settings(self) -> dict[str, Any]:
        """What differs from the defaults."""
        defaults = {"set": "imagenet", "size": 224, "window": 16}
        return {n: getattr(self, n) for n, value in defaults.items() if getattr(self, n) != value}

    def network_settings(self) -> dict[str, Any]:
        """Of `model`, beside the number of classes."""
        return {}

    def named_network(self) -> dict[str, Any]:
        return {"name": self.model, "settings": {"classes": self.classes, **self.network_settings()}}

    def build_model(self, *, seed: int, lanes: int) -> nn.Module:
        network = self.named_network()
        with seeded(seed):
            return models.build(network["name"], **network["settings"])

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Part]:
        return self._source.order(seed, batch_size)

    def share(self, first: int, last: int, parts: int) -> None:
        self._source.share(first, last, parts)

    def carried(self, carry: Carry | None) -> None:
        self._source.carried(carry)

    def divide(self, batch: Part, parts: int) -> Sequence[Part]:
        count = min(parts, len(batch))
        return [batch.slice(i, count) for i in range(count)]

    def loss(self, model: nn.Module, batch: Part, generator: torch.Generator) -> Tensor:
        images, labels = self._source.batch(batch)
        dtype = next(model.parameters()).dtype
        inputs = normalise(images, MEAN, STD, dtype, memory_format=self.memory_format)
        return F.cross_entropy(model(inputs), labels)

    def inputs(self, batch: Part) -> Tensor:
        return self.prepare(self._source.batch(batch)[0])

    def prepare(self, inputs: Tensor) -> Tensor:
        """(bytes/255 − mean)/std per channel, float32, from uint8 images [n, 3, size, size].

        Raises:
            UserError: other inputs.
        """
        if inputs.dtype != torch.uint8 or tuple(inputs.shape[1:]) != (3, self.size, self.size):
            raise UserError(
                f"images must be bytes (uint8) of shape [n, 3, {self.size}, {self.size}], got "
                f"{str(inputs.dtype).removeprefix('torch.')} of shape {list(inputs.shape)}"
            )
        return normalise(inputs, MEAN, STD, memory_format=self.memory_format)

    def preparation(self) -> dict[str, Any]:
        return {"kind": "normalise", "mean": list(MEAN), "std": list(STD)}

    def to(self, device: torch.device) -> None:
        self._source.to(device)
        self.memory_format = torch.channels_last if device.type == "cuda" else torch.contiguous_format

    def splits(self) -> Mapping[str, Evaluation]:
        return self._splits

    @cached_property
    def _splits(self) -> Mapping[str, Evaluation]:
        return LazySplits({"test": lambda: _Central(self, self.test), "train": lambda: _Central(self, "train")})


class _Central(Classification):
    """A split whose pictures are decoded shard by shard and whose fingerprint is the manifest's."""

    def __init__(self, task: Prepared, split: str) -> None:
        source = Streaming(task._uri, task.manifest, split, task.size, task.window)
        inputs: Any = Central(source.rows, task.size)
        super().__init__(
            model=task.build_model(seed=0, lanes=1), inputs=inputs, labels=lambda: source.rows.labels,
            classes=task.classes,
            prepare=task.prepare, preparation=task.preparation(),
        )  # fmt: skip
        self._known = f"prepared/{task.manifest.splits[split].fingerprint}/{task.size}"

    @property
    def fingerprint(self) -> str:
        return self._known


class ImageNetResNet50(Prepared):
    """ImageNet under torchvision's ResNet-50: cSG-MCMC's Table 3 (120 epochs, 3 cycles, 3 samples each)."""

    model = "resnet50"
    defaults = MappingProxyType(
        {
            "epochs": 120,
            "cycles": 3,
            "samples_per_cycle": 3,
            "batch_size": 256,
            "lr": 0.1,
            "sampler": "csghmc",
            "temperature": 1e-6,
        }
    )


class ImageNetResNetPlus50(Prepared):
    """ImageNet under ResNet++ of depth 50 with its own prior: ATMC §5.2 (cycles of 20 epochs, batches of 1,024)."""

    model = "resnet_plus"
    defaults = MappingProxyType(
        {"epochs": 120, "cycles": 6, "samples_per_cycle": 1, "batch_size": 1024, "sampler": "atmc"}
    )

    def __init__(self, set: str = "imagenet", size: int = 224, window: int = 16) -> None:
        self.prior = resnet_plus_prior(scale=1.0, std=0.01, bias_std=1.0)
        super().__init__(set, size, window)

    def network_settings(self) -> dict[str, Any]:
        return {"depth": 50}


class FolderResNetPlus(Prepared):
    """Any prepared set under ResNet++ with its own prior, so that weight decay must be 0.

    Args:
        set: as for every prepared set.
        size: likewise.
        window: likewise.
        depth: 6n + 2, or 50, the network for ImageNet.
        width: channels of the first of three stages; the network for ImageNet has none to choose.
    """

    model = "resnet_plus"

    def __init__(
        self, set: str = "imagenet", size: int = 224, window: int = 16, depth: int = 56, width: int = 32
    ) -> None:
        ok = is_int(depth) and 8 <= depth <= DEEPEST and (depth % 6 == 2 or depth == 50)
        require(ok, "depth", depth, f"be 6n + 2 in [8, {DEEPEST}], or 50")
        require(is_int(width) and 1 <= width <= WIDEST, "width", width, f"be an integer in [1, {WIDEST}]")
        self.depth, self.width = depth, width
        self.prior = resnet_plus_prior(scale=1.0, std=0.01, bias_std=1.0)
        super().__init__(set, size, window)

    def settings(self) -> dict[str, Any]:
        own = {"depth": (self.depth, 56), "width": (self.width, 32)}
        return super().settings() | {n: value for n, (value, default) in own.items() if value != default}

    def network_settings(self) -> dict[str, Any]:
        return {"depth": self.depth, **({"width": self.width} if self.depth != 50 else {})}


class FolderResNet18(Prepared):
    """Any prepared set under ResNet-18 for small images."""

    model = "resnet18"


class FolderResNet50(Prepared):
    """Any prepared set under torchvision's ResNet-50."""

    model = "resnet50"


class FolderLeNet(Prepared):
    """Any prepared set under a LeNet: a first look."""

    model = "lenet"

    def network_settings(self) -> dict[str, Any]:
        return {"in_channels": 3, "size": self.size}
