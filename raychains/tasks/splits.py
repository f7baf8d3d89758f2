"""Splits of a labelled set: stratified and seeded by what the examples are, and a mapping that reads a split when
asked."""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from raychains.core.errors import UserError, require
from raychains.core.validation import integer, is_int, is_number
from raychains.evaluation.evaluation import Array, Evaluation

HELD = 4
"""Splits whose data are held at a time."""
MOST_WEIGHTS, MOST_LAYERS = 100_000_000, 100


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The examples that are trained on and those held out: positions in the set, ascending."""

    train: Array
    val: Array


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The number of training examples that are used, and of those held out as the split ``val``."""

    used: int
    val: int

    @property
    def train(self) -> int:
        """N: the examples to learn from."""
        return self.used - self.val


def sizes(available: int, train_subset: int | None, val_split: float) -> Sizes:
    """Return the sizes that options give, checked.

    Args:
        available: training examples of the set.
        train_subset: how many of them are used; None is all.
        val_split: below 1 the share of those that is held out, rounded to the nearest number of examples; from 1 on
            the number itself.

    Raises:
        UserError: a setting out of range, or one that leaves nothing to learn from or nothing to hold out.
    """
    used = available if train_subset is None else train_subset
    integer("train_subset", used, 1, available, ", the number of training examples")
    ok = is_number(val_split) and val_split >= 0 and (val_split < 1 or val_split == int(val_split))
    require(ok, "val_split", val_split, "be a share in [0, 1) or a whole number of examples")
    held = int(val_split) if val_split >= 1 else round(val_split * used)
    fits = val_split == 0 or 1 <= held < used
    require(fits, "val_split", val_split, f"hold out at least one of the {used} training examples and leave one")
    return Sizes(used=used, val=held)


def divide(examples: Array, labels: Array, chosen: Sizes, seed: int) -> Parts:
    """Return the training and held-out parts: disjoint, together as large as asked, each class within one of its share.

    What is chosen depends on the examples and the seed, not on the order in which they lie in a file. The used part
    grows with `Sizes.used`: a smaller one is part of a larger one.
    """
    used = np.arange(len(labels))
    if chosen.used < len(labels):
        used = stratified(examples, labels, f"subset/{seed}")[: chosen.used]
    if not chosen.val:
        return Parts(train=np.sort(used), val=used[:0])
    order = used[stratified(examples[used], labels[used], f"val/{seed}")]
    return Parts(train=np.sort(order[chosen.val :]), val=np.sort(order[: chosen.val]))


def divide_groups(groups: Array, chosen: Sizes, seed: int) -> Parts:
    """Return parts of whole groups: the fewest groups that make the held-out part as large as asked.

    Groups come in the order of a hash of seed and group; one at least is left to train on.

    Args:
        groups: an integer for each example, [n].
    """
    names = sorted(np.unique(groups).tolist(), key=lambda g: hashlib.sha256(f"raychains/{seed}/{g}".encode()).digest())
    sizes_of = np.cumsum([np.count_nonzero(groups == name) for name in names])
    count = min(int(np.searchsorted(sizes_of, chosen.val)) + 1, len(names) - 1)
    held = np.isin(groups, names[:count])
    return Parts(train=np.flatnonzero(~held), val=np.flatnonzero(held))


def stratified(examples: Array, labels: Array, seed: str) -> Array:
    """Return a permutation of ``range(n)``: in its first k, for every k, each class's count is within one of k times
    its share.

    Within a class examples come in the order of a hash of seed, label and bytes. The classes take turns as unit tasks
    do under Pfair scheduling: the j-th example of a class of m may come at places from ⌊(j−1)·n/m⌋ on and must come
    before ⌈j·n/m⌉; the earliest deadline goes first, which always succeeds (Baruah et al. 1996).
    """
    n = len(labels)
    prefix = f"raychains/{seed}/".encode()
    rows = np.ascontiguousarray(examples).reshape(n, -1)
    keys = [
        hashlib.sha256(prefix + str(int(c)).encode() + r.tobytes()).digest() for r, c in zip(rows, labels, strict=True)
    ]
    members = {int(c): sorted(np.flatnonzero(labels == c).tolist(), key=keys.__getitem__) for c in np.unique(labels)}
    waiting: list[tuple[int, int, int]] = [(0, c, 0) for c in members]
    ready: list[tuple[int, int, int]] = []
    heapq.heapify(waiting)
    order = np.empty(n, dtype=np.int64)
    for place in range(n):
        while waiting and waiting[0][0] <= place:
            _, c, j = heapq.heappop(waiting)
            heapq.heappush(ready, (-(-(j + 1) * n // len(members[c])), c, j))
        _, c, j = heapq.heappop(ready)
        order[place] = members[c][j]
        if j + 1 < len(members[c]):
            heapq.heappush(waiting, ((j + 1) * n // len(members[c]), c, j + 1))
    return order


class LazySplits(Mapping[str, Evaluation]):
    """Splits by name, each made when it is asked for: names are known, and `in` answers, without any data.

    The last `HELD` that were asked for are held; others, such as corruptions by the dozen, are made again.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Evaluation]]) -> None:
        self._makers = dict(makers)
        self._made: dict[str, Evaluation] = {}

    def __getitem__(self, name: str) -> Evaluation:
        found = self._made.pop(name) if name in self._made else self._makers[name]()
        while len(self._made) >= HELD:
            del self._made[next(iter(self._made))]
        self._made[name] = found
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def listed(names: Iterable[str]) -> str:
    """Return names of splits for messages: families of many, such as corruptions, by their pattern."""
    shown = ["corrupted:KIND:SEVERITY" if name.startswith("corrupted:") else name for name in names]
    return ", ".join(dict.fromkeys(shown))


def evaluated(splits: Mapping[str, Any]) -> str:
    """Return the split that runs are evaluated on: ``test``, or where a task has none ``val``, else ``train``."""
    names = list(splits)  # a mapping of the user's may read a split to see whether it has it
    return next((name for name in ("test", "val", "train") if name in names), "test")


def check_evaluated(splits: Mapping[str, Any], name: str, task: str) -> None:
    """Refuse a task without the split that runs are evaluated on.

    Raises:
        UserError: there is none of that name.
    """
    require(name in splits, "task", task, f"have the split {name!r}, on which runs are evaluated")


def check_split(splits: Mapping[str, Any], name: str) -> None:
    """Refuse a split that a task does not have.

    Raises:
        UserError: none of that name; the message lists the others.
    """
    if name not in splits:
        kinds = sorted({n.split(":")[1] for n in splits if n.startswith("corrupted:")})
        which = (
            f"; KIND is one of {', '.join(kinds)}, SEVERITY 1 to 5" if kinds and name.startswith("corrupted") else ""
        )
        raise UserError(f"split must be one of {listed(splits)}, got {name!r}{which}")


def check_hidden(hidden: Sequence[int], inputs: int, outputs: int, most_weights: int = MOST_WEIGHTS) -> tuple[int, ...]:
    """Return the widths of an MLP's hidden layers, checked."""
    ok = isinstance(hidden, list | tuple) and all(is_int(width) and width >= 1 for width in hidden)
    require(ok, "hidden", hidden, "be a list of integers of at least 1: the widths of the hidden layers")
    weights = sum(a * b for a, b in itertools.pairwise((inputs, *hidden, outputs)))
    ok = len(hidden) <= MOST_LAYERS and weights <= most_weights
    require(ok, "hidden", hidden, f"give at most {most_weights} weights")
    return tuple(hidden)
