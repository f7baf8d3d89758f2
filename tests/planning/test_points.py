"""Points are plain data: their keys say what the network is made of and nothing else."""

from __future__ import annotations

import dataclasses

from raychains.planning.points import Point, Term
from tests.checks import refused

TERM = Term(coefficient=0.25, digest="d" * 64, file="samples/000000-theta-1.safetensors", sha256="a" * 64)
OTHER = dataclasses.replace(TERM, coefficient=0.75, sha256="b" * 64, start="c" * 64)
FULL = Point(
    samples=(TERM, OTHER), directions=((0.5, 3), (-1.0, 4)), normalise="none", reestimate=True, fisher=100
)  # fmt: skip


def test_keys_differ_where_networks_do_and_not_by_where_a_sample_lies() -> None:
    moved = dataclasses.replace(TERM, digest="e" * 64, file="samples/000000-theta-2.safetensors")
    assert Point(samples=(moved,)).key == Point(samples=(TERM,)).key
    others = [
        Point(samples=(TERM, OTHER)),
        Point(samples=(OTHER, TERM)),
        Point(samples=(dataclasses.replace(TERM, coefficient=0.250001),)),
        Point(samples=(dataclasses.replace(TERM, start="c" * 64),)),
        Point(samples=(TERM,), directions=((0.5, 3),)),
        Point(samples=(TERM,), directions=((0.5, 4),)),
        Point(samples=(TERM,), directions=((0.5, 3),), normalise="none"),
        Point(samples=(TERM,), reestimate=True),
        Point(samples=(TERM,), fisher=10),
        Point(samples=(TERM,), fisher=11),
    ]
    assert len({p.key for p in [Point(samples=(TERM,)), *others]}) == len(others) + 1
    assert Point(samples=(TERM,), normalise="none").key == Point(samples=(TERM,)).key, (
        "without a direction it is nothing"
    )


def test_the_key_of_a_point_is_frozen() -> None:
    """What was measured is found by it: a change of this value forgets all of it."""
    assert FULL.key == "ce267b45b284d099bc57ff80e22bf4a5c7c8012d64593e1767c54f58e2d468a1"


def test_what_makes_no_network_is_refused() -> None:
    with refused("samples", "term"):
        Point(samples=())
    with refused("normalise", "filter", "none"):
        Point(samples=(TERM,), normalise="layer")
    with refused("coefficient", "finite"):
        dataclasses.replace(TERM, coefficient=float("inf"))
    with refused("directions", "finite"):
        Point(samples=(TERM,), directions=((float("nan"), 0),))
    with refused("fisher", "0"):
        Point(samples=(TERM,), fisher=-1)
