"""Image sets that were prepared for streaming (ImageNet and any folder of classes) under networks of their size."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from raychains.core.data_root import root_of
from raychains.core.errors import UserError, format_error, require
from raychains.core.validation import integer, is_int
from raychains.data import standin_manifest
from raychains.data.prepared.manifest import Rows, manifest_at
from raychains.data.prepared.order import Part
from raychains.data.prepared.pictures import image_of
from raychains.data.prepared.streaming import Central, Streaming
from raychains.evaluation.classification import Classification
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.priors import resnet_plus_prior
from raychains.tasks.base import Task
from raychains.tasks.images import NormalisedPictures, check_thin

LARGEST = 1024
SMALL, LARGE = 32, 224
"""Smallest and largest size, in pixels of a side, that is chosen where the user gives none."""
MEASURED = 64
"""Pictures whose sizes decide."""


def check_set_name(name: object) -> None:
    """Refuse a set's name that is not a plain name of a folder."""
    plain = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", name) is not None
    require(plain, "set", name, "be the name of a folder of the data root, of letters, digits, '-', '_' and '.'")


def place_of(name: str) -> str:
    """Return the place of the prepared set of this name: a folder of the data root, which may be a URI here.

    Raises:
        UserError: a name that is a path, or a data root that does not exist.
    """
    check_set_name(name)
    root = root_of()
    place, question, query = root.partition("?") if "://" in root else (root, "", "")
    return f"{place.rstrip('/')}/{name}{question}{query}"


class Prepared(NormalisedPictures):
    """Classification of a prepared set's pictures: random crops and mirrors to learn from, central crops to predict.

    Splits: ``test`` is the set's ``test``, or its ``val`` where there is none, as ImageNet's papers have it; ``train``
    is what is learned from, cropped centrally.

    Args:
        set: its folder in the data root; `raychains prepare` makes it.
        size: pixels of a side that the network sees.
        window: W, row groups whose pictures are mixed.

    Raises:
        UserError: a setting out of range, or no such set.
    """

    model: ClassVar[str]
    """The network's name in `raychains.models`."""
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    """Means and standard deviations of ImageNet's training images per channel, in the usual rounding."""

    def __init__(self, set: str = "imagenet", size: int = 224, window: int = 16) -> None:
        integer("size", size, 8, LARGEST)
        integer("window", window, 1)
        self.set, self.size, self.window = set, size, window
        self.shape = (3, size, size)
        self._uri = place_of(set)
        self.manifest = manifest_at(self._uri)
        if "train" not in self.manifest.splits or len(self.manifest.splits) < 2:
            known = ", ".join(self.manifest.splits)
            raise UserError(f"set must have the splits train and val (or test), got {known} of {set!r}")
        self.classes = len(self.manifest.classes)
        if all(name.startswith(standin_manifest.CLASS) for name in self.manifest.classes):
            self.data_notes = (standin_manifest.NOTE.format(name=set),)
        self.streaming = Streaming(self._uri, self.manifest, "train", size, window)
        self.source = self.streaming  # type: ignore[assignment]  # its indices are `Part`s
        self.num_data = len(self.streaming)
        # The order of learning follows the row groups, so they are part of what the data are.
        split = self.manifest.splits["train"]
        text = f"{split.fingerprint} {self.test} {self.manifest.splits[self.test].fingerprint} {split.rows}"
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    @property
    def test(self) -> str:
        """The set's split that is the task's ``test``."""
        return "test" if "test" in self.manifest.splits else "val"

    def settings(self) -> dict[str, Any]:
        """Return what differs from the defaults."""
        return self._changed({"set": self.set, "size": self.size, "window": self.window})

    def network_settings(self) -> dict[str, Any]:
        """Return the settings of `model` beside the number of classes."""
        return {}

    def named_network(self) -> dict[str, Any]:
        return {"name": self.model, "settings": {"classes": self.classes, **self.network_settings()}}

    def epoch(self, *, seed: int, batch_size: int) -> Sequence[Part]:
        return self.streaming.order(seed, batch_size)

    def epoch_among(self, examples: Tensor, *, seed: int, batch_size: int) -> Sequence[Part]:
        return Task.epoch_among(
            self, examples, seed=seed, batch_size=batch_size
        )  # read in runs of rows, not one by one

    def share(self, first: int, last: int, parts: int) -> None:
        self.streaming.share(first, last, parts)

    def divide(self, batch: Part, parts: int) -> Sequence[Part]:
        count = min(parts, len(batch))
        return [batch.slice(i, count) for i in range(count)]

    def split_makers(self) -> dict[str, Callable[[], Evaluation]]:
        return {"test": lambda: _Central(self, self.test), "train": lambda: _Central(self, "train")}


def _labels(rows: Rows) -> Array:
    try:
        return rows.labels
    except OSError as error:
        raise rows.unreadable(error) from None


class _Central(Classification):
    """A split whose pictures are decoded shard by shard and whose fingerprint is the manifest's."""

    def __init__(self, task: Prepared, split: str) -> None:
        source = Streaming(task._uri, task.manifest, split, task.size, task.window)
        inputs: Any = Central(source.rows, task.size)
        super().__init__(inputs=inputs, labels=lambda: _labels(source.rows), classes=task.classes, **task.predicting())
        self._known = f"prepared/{task.manifest.splits[split].fingerprint}/{task.size}"

    @property
    def fingerprint(self) -> str:
        return self._known


class ImageNetResNet50(Prepared):
    """ImageNet under torchvision's ResNet-50: cSG-MCMC's Table 3 (120 epochs, 3 cycles, 3 samples each)."""

    name = "imagenet-resnet50"
    model = "resnet50"
    defaults = MappingProxyType(
        {"epochs": 120, "cycles": 3, "samples_per_cycle": 3, "batch_size": 256}
        | {"lr": 0.1, "sampler": "csghmc", "temperature": 1e-6}
    )


class ImageNetResNetPlus50(Prepared):
    """ImageNet under ResNet++ of depth 50 with its own prior: ATMC §5.2 (cycles of 20 epochs, batches of 1,024)."""

    name = "imagenet-resnetpp50"
    model, prior = "resnet_plus", resnet_plus_prior()
    defaults = MappingProxyType(
        {"epochs": 120, "cycles": 6, "samples_per_cycle": 1, "batch_size": 1024, "sampler": "atmc"}
    )

    def network_settings(self) -> dict[str, Any]:
        return {"depth": 50}


class FolderTask(Prepared):
    """Any prepared set. Where a user names the task without ``size``, the network sees pictures of about their own
    size."""

    @classmethod
    def fitted(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings with a size: the median of the first pictures' shorter sides, at most `LARGE`.

        A spec holds the size, so that the choice is made once; one without a size, of an earlier version, means 224.
        """
        if "size" in settings:
            return dict(settings)
        uri = place_of(str(settings.get("set", "imagenet")))
        manifest = manifest_at(uri)
        if "train" not in manifest.splits:
            return dict(settings)  # refused with the set's splits when the task is made
        try:
            sides = [min(image_of(picture).size) for picture in Rows(uri, manifest, "train").read(0)[:MEASURED]]
        except OSError as error:
            raise UserError(
                f"size must be given for a set whose pictures cannot be read, {settings.get('set', 'imagenet')!r}: "
                f"{format_error(error)}"
            ) from None
        return {**settings, "size": int(np.clip(np.median(sides), SMALL, LARGE))}


class FolderResNetPlus(FolderTask):
    """Any prepared set under ResNet++ with its own prior, so that weight decay must be 0.

    Args:
        set: as for every prepared set.
        size: likewise.
        window: likewise.
        depth: 6n + 2, or 50, the network for ImageNet.
        width: channels of the first of three stages; the network for ImageNet has none to choose.
    """

    name = "imagefolder-resnetpp"
    model, prior = "resnet_plus", resnet_plus_prior()

    def __init__(
        self, set: str = "imagenet", size: int = 224, window: int = 16, depth: int = 56, width: int = 32
    ) -> None:
        check_thin(depth, width, is_int(depth) and (depth % 6 == 2 or depth == 50), ", or 50")
        self.depth, self.width = depth, width
        super().__init__(set, size, window)

    def settings(self) -> dict[str, Any]:
        return super().settings() | self._changed({"depth": self.depth, "width": self.width})

    def network_settings(self) -> dict[str, Any]:
        return {"depth": self.depth, **({"width": self.width} if self.depth != 50 else {})}


class FolderResNet18(FolderTask):
    """Any prepared set under ResNet-18 for small images."""

    name = "imagefolder-resnet18"
    model = "resnet18"


class FolderResNet50(FolderTask):
    """Any prepared set under torchvision's ResNet-50."""

    name = "imagefolder-resnet50"
    model = "resnet50"


class FolderLeNet(FolderTask):
    """Any prepared set under a LeNet: a first look."""

    name = "imagefolder-lenet"
    model = "lenet"

    def network_settings(self) -> dict[str, Any]:
        return {"in_channels": 3, "size": self.size}
