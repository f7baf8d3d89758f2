"""Stratified, seeded splits: shares of classes, disjoint, by content; and a mapping of splits that reads when asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from raychains.tasks.splits import HELD, LazySplits, Sizes, check_split, divide, listed, sizes, stratified
from tests.checks import refused

Array = np.ndarray[Any, Any]


def examples(n: int, classes: int, *, even: bool) -> tuple[Array, Array]:
    """Different images [n, 6] of bytes, and labels of which a class may be rare."""
    rng = np.random.default_rng(n)
    labels = rng.integers(classes, size=n) if even else np.minimum(rng.geometric(0.3, size=n) - 1, classes - 1)
    images = rng.integers(0, 256, (n, 6), dtype=np.uint8)
    assert len(np.unique(images, axis=0)) == n
    return images, labels


CASES = [(500, 10, True), (997, 7, False), (300, 100, True), (12, 12, True), (5, 1, True)]
EACH = pytest.mark.parametrize(("n", "classes", "even"), CASES)


@EACH
def test_every_prefix_holds_each_class_to_within_one_of_its_share(n: int, classes: int, even: bool) -> None:
    images, labels = examples(n, classes, even=even)
    order = stratified(images, labels, "s")
    assert sorted(order) == list(range(n))
    for c in np.unique(labels):
        so_far = np.cumsum(labels[order] == c)
        assert np.abs(so_far - np.arange(1, n + 1) * np.mean(labels == c)).max() < 1


@EACH
@pytest.mark.parametrize(("used", "val"), [(1.0, 0.2), (0.5, 0.0), (0.7, 0.3)])
def test_parts_are_disjoint_complete_and_stratified(n: int, classes: int, even: bool, used: float, val: float) -> None:
    images, labels = examples(n, classes, even=even)
    wanted = Sizes(used=round(used * n), val=round(val * round(used * n)))
    parts = divide(images, labels, wanted, 3)
    both = np.concatenate([parts.train, parts.val])
    assert len(set(both)) == wanted.used and (len(parts.train), len(parts.val)) == (wanted.train, wanted.val)
    assert (np.diff(parts.train) > 0).all() and (np.diff(parts.val) > 0).all()
    if wanted.used == n:
        assert sorted(both) == list(range(n))
    for c in np.unique(labels):
        of_all, of_used = np.mean(labels == c), np.mean(labels[both] == c)
        assert abs(np.sum(labels[both] == c) - wanted.used * of_all) < 1
        assert abs(np.sum(labels[parts.val] == c) - wanted.val * of_used) < 1
        assert abs(np.sum(labels[parts.train] == c) - wanted.train * of_used) < 1


def contents(images: Array, part: Array) -> set[bytes]:
    return {images[i].tobytes() for i in part}


def test_the_choice_depends_on_examples_and_seed_and_not_on_their_order_in_the_file() -> None:
    images, labels = examples(400, 10, even=True)
    shuffle = np.random.default_rng(1).permutation(400)
    wanted = Sizes(used=200, val=50)
    one, other = divide(images, labels, wanted, 0), divide(images[shuffle], labels[shuffle], wanted, 0)
    for part in ("train", "val"):
        assert contents(images, getattr(one, part)) == contents(images[shuffle], getattr(other, part))
    assert contents(images, divide(images, labels, wanted, 1).val) != contents(images, one.val)
    assert not np.array_equal(np.sort(one.val), np.arange(50))  # nor the first ones of the file


def test_a_smaller_subset_is_part_of_a_larger_one() -> None:
    images, labels = examples(400, 10, even=True)
    kept = [set(divide(images, labels, Sizes(used=n, val=0), 0).train) for n in (7, 100, 333)]
    assert kept[0] < kept[1] < kept[2]


def test_sizes_are_shares_or_numbers() -> None:
    assert sizes(100, None, 0) == Sizes(used=100, val=0)
    assert sizes(100, 50, 0.1) == Sizes(used=50, val=5) == sizes(100, 50, 5) == sizes(100, 50, 5.0)
    assert sizes(100, None, 0.255).val == 26 and sizes(100, None, 1).val == 1


@pytest.mark.parametrize("n", [0, -1, 101, 10.0, True, "ten"])
def test_a_wrong_subset_is_one_line(n: Any) -> None:
    with refused("train_subset", "100", str(n)):
        sizes(100, n, 0.0)


@pytest.mark.parametrize("val", [-0.1, 1.5, 100, 0.001, 0.999, float("nan"), float("inf"), None, "half", True])
def test_a_wrong_share_is_one_line(val: Any) -> None:
    with refused("val_split", *(["True"] if val is True else [])):  # it is 1 to Python and no number of examples to us
        sizes(100, None, val)


def test_splits_are_made_when_asked_for_and_once() -> None:
    made: list[str] = []

    def maker(name: str) -> Any:
        def make() -> Any:
            made.append(name)
            return object()

        return make

    splits = LazySplits({name: maker(name) for name in ("test", "train", "ood:x")})
    assert list(splits) == ["test", "train", "ood:x"] == list(splits.keys()) and len(splits) == 3
    assert "ood:x" in splits and "val" not in splits and made == []
    assert splits["ood:x"] is splits["ood:x"] and made == ["ood:x"]
    with pytest.raises(KeyError):
        splits["val"]


def test_only_the_last_splits_are_held() -> None:
    """Corruptions by the dozen, of 30 MB each, are evaluated one after another."""
    splits = LazySplits({str(i): lambda: object() for i in range(HELD + 2)})  # type: ignore[arg-type]
    first = splits["0"]
    others = [splits[str(i)] for i in range(1, HELD)]
    assert splits["0"] is first, "asked for again, it is the latest"
    splits[str(HELD)]
    assert splits["0"] is first and splits["1"] is not others[0]


def test_an_unknown_split_is_one_line_that_tells_the_others() -> None:
    names = {"test": 0, "train": 0, **{f"corrupted:{kind}:{s}": 0 for kind in ("fog", "snow") for s in range(1, 6)}}
    check_split(names, "corrupted:fog:3")
    assert listed(names) == "test, train, corrupted:KIND:SEVERITY"
    with refused("split", "test, train, corrupted:KIND:SEVERITY", "'val'"):
        check_split(names, "val")
    with refused("corrupted:fog:6", "fog, snow", "1 to 5"):
        check_split(names, "corrupted:fog:6")
