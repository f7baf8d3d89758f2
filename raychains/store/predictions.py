"""Kept predictions of networks: what one sample says of one split, so that another measure costs no forward pass.

``STORE/predictions/<first digits of the sha256 of the split's fingerprint>/<sample's sha256>.safetensors`` holds one
sample's blocks on all shards of a split. It is a cache: a file that is torn, altered or somebody else's counts as none.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from raychains.errors import RaychainsError, StorageFull, UserError, unknown_name
from raychains.evaluation.base import Array, Evaluation
from raychains.spec import ChainSpec, TaskSpec, digest_of
from raychains.store import codec, starts
from raychains.store.chains import ChainStore, SampleRecord
from raychains.store.filesystem import Root

log = logging.getLogger(__name__)

FORMAT = 1
POLICIES = ("auto", "all", "none")
"""What is kept: all predictions while they are small, all in any case, or no more than there are already."""
AUTO_BYTES = 1_000_000_000
"""Bytes of a run's predictions on one split up to which ``auto`` keeps them."""
DIGITS = 32
"""Of the fingerprint's sha256 in a folder's name."""


def check_policy(policy: str) -> None:
    """Whether there is such a policy.

    Raises:
        UserError: there is none.
    """
    if policy not in POLICIES:
        raise unknown_name("keep_predictions", policy, POLICIES)


def keeps(policy: str, samples: int, each: int) -> bool:
    """Whether predictions are kept.

    Args:
        policy: one of `POLICIES`.
        samples: how many samples the run evaluates on the split.
        each: bytes of one sample's blocks, which all samples of the run share.
    """
    return policy == "all" or (policy == "auto" and samples * each <= AUTO_BYTES)


class Predictions:
    """The kept predictions of one task's networks on one of its splits.

    Args:
        root: the store.
        task: whose networks predict; blocks of another task's are none of these.
        fingerprint: of the split: see `raychains.evaluation.base.Evaluation.fingerprint`.
        shards: how many the split has.
    """

    def __init__(self, root: Root, task: TaskSpec, fingerprint: str, shards: int) -> None:
        self._root = root.waiting(lambda reason: False)  # a cache is not waited for
        self._identity = {"predictions": FORMAT, "task": digest_of(task.to_json()), "fingerprint": fingerprint}
        self._folder = f"predictions/{hashlib.sha256(fingerprint.encode()).hexdigest()[:DIGITS]}"
        self._shards = shards
        self._full = False

    def name(self, sample: str) -> str:
        """The file of a sample, given its tensors' sha256."""
        return f"{self._folder}/{sample}.safetensors"

    def read(self, sample: str, start: str | None = None) -> list[Array] | None:
        """A sample's blocks by shard; None where they are not kept, or not readable by this version.

        Args:
            sample: its tensors' sha256.
            start: what completes a sample that holds only some of the network's parameters.
        """
        try:
            return self._read(sample, start)
        except FileNotFoundError:
            return None
        except (codec.Corrupt, UserError, OSError, TypeError) as error:  # TypeError: of a dtype that numpy lacks
            log.warning(
                "kept prediction passed over, the sample is predicted again: %s: %s", self._location(sample), error
            )
            return None

    def _read(self, sample: str, start: str | None) -> list[Array]:
        tensors, own = codec.decode(self._root.read(self.name(sample)))
        number = own.get("predictions")
        if isinstance(number, int) and number > FORMAT:
            raise UserError(f"its format is {number}, newer than {FORMAT}: it needs a newer raychains")
        names = [_shard(i) for i in range(self._shards)]
        lengths = [len(tensors[n]) for n in names if n in tensors and tensors[n].dim()]
        expected = {**self._identity, "sample": sample, "start": start, "lengths": lengths}
        if sorted(tensors) != names or any(own.get(key) != value for key, value in expected.items()):
            raise codec.Corrupt("it holds something else than its name says")
        return [tensors[name].numpy() for name in names]

    def write(self, sample: str, blocks: Sequence[Array], start: str | None = None) -> None:
        """Keep a sample's blocks, one per shard, as they are. Storage that refuses them is no error: they can be made again."""
        if self._full:
            return
        try:
            tensors = {_shard(i): torch.from_numpy(np.ascontiguousarray(b)) for i, b in enumerate(blocks)}
            lengths = [len(b) for b in blocks]
            own = {**self._identity, "sample": sample, "start": start, "lengths": lengths}
            if not self._newer(sample):
                self._root.publish(self.name(sample), codec.encode(tensors, own))
        except StorageFull as error:
            self._full = True
            log.warning("no further predictions are kept: %s", error)
        except (RaychainsError, OSError, TypeError) as error:  # TypeError: blocks that no tensor can hold
            log.warning("a prediction is not kept: %s: %s", self._location(sample), error)

    def _newer(self, sample: str) -> bool:
        """Whether a file of a newer format has the name: it is somebody's good one."""
        try:
            head = self._root.read_range(self.name(sample), 0, 8)
            own = codec.describe(head + self._root.read_range(self.name(sample), 8, codec.header_length(head)))
        except (FileNotFoundError, codec.Corrupt):
            return False
        except UserError:
            return True
        number = own.get("predictions")
        return isinstance(number, int) and number > FORMAT

    def _location(self, sample: str) -> str:
        return self._root.location(self.name(sample))


def _shard(number: int) -> str:
    return f"{number:06d}"


def predictions(
    root: Root, evaluation: Evaluation, records: Iterable[tuple[ChainSpec, SampleRecord]]
) -> Iterator[np.ndarray[Any, Any]]:
    """What each sample predicts on a split, [examples, …], the shards concatenated: log-probabilities of classifiers.

    Read where it is kept; predicted here, sample by sample, where it is not. Nothing is written.

    Args:
        root: the store.
        evaluation: the split, ``task.splits()[name]``.
        records: each sample's chain and record: `raychains.predictive.Selection.records`.
    """
    complete = starts.Completion(root)
    for spec, record in records:
        start = starts.needed(spec)
        blocks = Predictions(root, spec.task, evaluation.fingerprint, evaluation.shards).read(record.sha256, start)
        if blocks is None:
            raw = ChainStore(root, spec.digest).read_sample(record.file)
            tensors = complete(codec.decode(raw)[0], start)
            blocks = [evaluation.predict(tensors, shard) for shard in range(evaluation.shards)]
        yield np.concatenate(blocks)
