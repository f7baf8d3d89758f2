"""Caches of evaluation: predictions of samples, and metrics of points between them. A torn or altered file is ignored.

``STORE/predictions/<first digits of the sha256 of the split's fingerprint>/<sample's sha256>.safetensors`` holds one
sample's blocks on all shards of a split, so that a further measure costs no forward pass.
``STORE/points/<split>/<point>.json`` holds one point's metrics; both names are sha256: of the split's fingerprint, and
of the task and the point's network.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from raychains.core.errors import RaychainsError, StorageAway, StorageRefused, UserError
from raychains.core.spec import ChainSpec, TaskSpec, digest_of
from raychains.evaluation.evaluation import Array, Evaluation, joined
from raychains.store import codec, initial_states
from raychains.store.chain_store import ChainStore, SampleRecord
from raychains.store.filesystem import Storage, json_bytes

log = logging.getLogger(__name__)

FORMAT = 1
AUTO_BYTES = 1_000_000_000
"""Bytes of a run's predictions on one split up to which ``auto`` keeps them."""


def keeps(policy: str, samples: int, each: int) -> bool:
    """Return whether predictions are kept: all of them, none beside those that are there, or with ``auto`` all while
    they are small.

    ``samples`` is how many the run evaluates on the split, ``each`` the bytes of one's blocks.
    """
    return policy == "all" or (policy == "auto" and samples * each <= AUTO_BYTES)


def _short_digest(fingerprint: str) -> str:
    """A split's folder: the first 32 digits of its fingerprint's sha256."""
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:32]


class Predictions:
    """The kept predictions of one task's networks on one of its splits."""

    def __init__(self, root: Storage, task: TaskSpec, fingerprint: str, shards: int) -> None:
        self._root = root.without_waiting()  # a cache is not waited for
        self._identity = {"predictions": FORMAT, "task": digest_of(task.to_json()), "fingerprint": fingerprint}
        self._folder = f"predictions/{_short_digest(fingerprint)}"
        self._shards = [f"{i:06d}" for i in range(shards)]
        self._full = False

    def name(self, sample: str) -> str:
        """Return the file of a sample, from its tensors' sha256."""
        return f"{self._folder}/{sample}.safetensors"

    def read(self, sample: str, start: str | None = None) -> list[Array] | None:
        """Return a sample's blocks by shard; None where they are not kept, or not readable by this version.

        A sample is named by its tensors' sha256, and so is the ``start`` that completes one of only some of the
        parameters.
        """
        try:
            tensors, own = codec.decode(self._root.read(self.name(sample)))
            if _newer(own):
                raise UserError(f"its format is {own['predictions']}, newer than {FORMAT}: it needs a newer raychains")
            lengths = [len(tensors[n]) for n in self._shards if n in tensors and tensors[n].dim()]
            expected = self._description(sample, start, lengths)
            if sorted(tensors) != self._shards or any(own.get(key) != value for key, value in expected.items()):
                raise codec.Corrupt("it holds something else than its name says")
            return [tensors[name].numpy() for name in self._shards]
        except FileNotFoundError:
            return None
        except (codec.Corrupt, UserError, OSError, TypeError) as error:  # TypeError: of a dtype that numpy lacks
            where = self._root.location(self.name(sample))
            log.warning("kept prediction passed over, the sample is predicted again: %s: %s", where, error)
            return None

    def _description(self, sample: str, start: str | None, lengths: list[int]) -> dict[str, Any]:
        return {**self._identity, "sample": sample, "start": start, "lengths": lengths}

    def write(self, sample: str, blocks: Sequence[Array], start: str | None = None) -> None:
        """Keep a sample's blocks, one per shard. Storage that refuses them is no error: they can be made again."""
        if self._full:
            return
        try:
            tensors = {f"{i:06d}": torch.from_numpy(np.ascontiguousarray(b)) for i, b in enumerate(blocks)}
            if not self._is_newer(sample):
                own = self._description(sample, start, [len(b) for b in blocks])
                self._root.publish(self.name(sample), codec.encode(tensors, own))
        except StorageRefused as error:
            self._full = True
            log.warning("no further predictions are kept: %s", error)
        except (RaychainsError, OSError, TypeError) as error:  # TypeError: blocks that no tensor can hold
            log.warning("a prediction is not kept: %s: %s", self._root.location(self.name(sample)), error)

    def _is_newer(self, sample: str) -> bool:
        """Return whether a file of a newer format has the name, which is valid for another version."""
        try:
            head = self._root.read_range(self.name(sample), 0, 8)
            own = codec.describe(head + self._root.read_range(self.name(sample), 8, codec.header_length(head)))
        except (FileNotFoundError, codec.Corrupt):
            return False
        except UserError:
            return True
        return _newer(own)


def _newer(description: dict[str, Any]) -> bool:
    number = description.get("predictions")
    return isinstance(number, int) and number > FORMAT


def predictions(
    root: Storage, evaluation: Evaluation, records: Iterable[tuple[ChainSpec, SampleRecord]]
) -> Iterator[np.ndarray[Any, Any]]:
    """Yield each sample's predictions on a split, [examples, …], the shards concatenated: log-probabilities of
    classifiers.

    Kept ones are read; the others are predicted here, sample by sample. Nothing is written.
    """
    complete = initial_states.Completion(root)
    for spec, record in records:
        start = initial_states.needed(spec)
        blocks = Predictions(root, spec.task, evaluation.fingerprint, evaluation.shards).read(record.sha256, start)
        if blocks is None:
            tensors = complete(ChainStore(root, spec.digest).sample(record.file)[0], start)
            blocks = [evaluation.predict(tensors, shard) for shard in range(evaluation.shards)]
        yield joined(blocks)


class PointMetrics:
    """The kept metrics of one task's points on one split.

    ``settings`` are further ones that the numbers depend on, such as a calibration error's bins.
    """

    def __init__(self, root: Storage, task: TaskSpec, fingerprint: str, settings: dict[str, Any] | None = None) -> None:
        self._root = root
        self._about = {"fingerprint": fingerprint, "settings": settings or {}, "task": digest_of(task.to_json())}
        self._folder = f"points/{_short_digest(fingerprint)}"
        self._there: set[str] | None = None

    def read(self, key: str) -> dict[str, float] | None:
        """Return the metrics of the point with this key; None where they are not kept.

        Raises:
            UserError: the file is of a newer format, and another version's valid one.
        """
        if self._there is None:
            self._there = set(self._root.names(self._folder))  # one listing instead of a request per point
        if self._file(key) not in self._there:
            return None
        try:
            own = self._root.read_object(f"{self._folder}/{self._file(key)}")
            if own is None:
                return None
            number = own["format"]
            if isinstance(number, int) and number > FORMAT:
                raise UserError(f"points: format must be at most {FORMAT}, got {number}: a newer raychains wrote them")
            if own["point"] != key or own["about"] != self._about:
                return None
            return {name: float(value) for name, value in own["metrics"].items()}
        except (UserError, StorageAway):
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, key: str, metrics: dict[str, float]) -> None:
        """Make a point's metrics durable."""
        # As text: JSON has no infinities, which far points may have.
        own = {"about": self._about, "metrics": {n: repr(float(v)) for n, v in metrics.items()}, "point": key}
        self._root.publish(f"{self._folder}/{self._file(key)}", json_bytes({"format": FORMAT, **own}))

    def _file(self, key: str) -> str:
        return f"{digest_of([key, self._about])}.json"
