"""Specs as plain data: JSON round trip, digests that never move silently, streams that ignore the arm."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pickle
from typing import Any, get_args

import pytest

from raychains.chain.random_streams import Purpose, stream_seed
from raychains.core.spec import ChainSpec, EarlyStop, Environment, Part, TaskSpec
from tests.checks import refused

SPEC = ChainSpec(
    task=TaskSpec(kind="pkg.tasks:Toy", revision=1, settings={"train": 500, "hidden": [100, 100]}, fingerprint="abc"),
    sampler=Part(kind="sghmc", revision=1, settings={"momentum": 0.9, "num_data": 500}),
    schedule=Part(kind="cyclical", revision=1, settings={"steps": 320, "lr": 0.5, "cycles": 4, "exploration": 0.8}),
    steps=320,
    steps_per_epoch=16,
    batch_size=32,
    seed=3,
    repeat=1,
    chain=2,
)
FULL = dataclasses.replace(SPEC, precision="fp64", threads=2, lanes=10, block_draws=2000)
GOLDEN = "b1aa59eb0f26635fc9a0f899179422148896798c8eaa4dd53934712884176dc9"
GOLDEN_FULL = "3a6a3e67ef195a698d7e86fbb015faeb154d0b3523bb846547cd44f9dc86dd11"


def through_text(spec: ChainSpec) -> ChainSpec:
    return ChainSpec.from_json(json.loads(json.dumps(spec.to_json())))


@pytest.mark.parametrize(("spec", "golden"), [(SPEC, GOLDEN), (FULL, GOLDEN_FULL)])
def test_digest_of_a_fixed_spec_is_frozen(spec: ChainSpec, golden: str) -> None:
    """A change here orphans every sample that people have stored: raise a revision instead."""
    for again in (spec, through_text(spec), pickle.loads(pickle.dumps(spec))):
        assert again == spec and hash(again) == hash(spec) and again.digest == golden
        assert isinstance(again.task, TaskSpec) and again.task.fingerprint == "abc"


def test_digest_does_not_depend_on_the_order_of_keys() -> None:
    def reverse(value: Any) -> Any:
        return {k: reverse(v) for k, v in reversed(value.items())} if isinstance(value, dict) else value

    reordered = reverse(SPEC.to_json())
    assert list(reordered) != list(SPEC.to_json())
    assert ChainSpec.from_json(reordered).digest == SPEC.digest


CHANGES: dict[str, Any] = {
    "task": TaskSpec(
        kind="pkg.tasks:Toy", revision=1, settings={"train": 500, "hidden": [100, 100]}, fingerprint="abd"
    ),
    "sampler": Part(kind="sghmc", revision=1, settings={"momentum": 0.8, "num_data": 500}),
    "schedule": Part(kind="cyclical", revision=2, settings=SPEC.schedule.settings),
    "steps": 321,
    "steps_per_epoch": 17,
    "batch_size": 33,
    "seed": 4,
    "repeat": 0,
    "chain": 0,
    "precision": "fp64",
    "threads": 4,
    "lanes": 2,
    "block_draws": 1,
    "batchnorm": "reestimate",
    "exact": False,
    "compile": "default",
    "start": "0" * 64,
    "sample_only": ("fc.*",),
    "micro_batch": 11,
    "pack": 20,
    "start_chain": "0" * 64,
    "early_stop": EarlyStop(share=0.15, patience=20),
    "prior": Part(kind="centred", revision=1, settings={"match": "*", "std": 0.5}),
}
WITH: dict[str, dict[str, Any]] = {
    "compile": {"exact": False},
    "sample_only": {"start": "0" * 64},
    "prior": {"start": "0" * 64},
}
"""What else a change must bring."""


def changed(name: str, spec: ChainSpec = SPEC) -> ChainSpec:
    return dataclasses.replace(spec, **{name: CHANGES[name]}, **WITH.get(name, {}))


def test_digest_changes_with_each_field() -> None:
    assert CHANGES.keys() == {f.name for f in dataclasses.fields(ChainSpec)}
    changed_digests = [changed(name).digest for name in CHANGES]
    assert len({SPEC.digest, *changed_digests}) == len(CHANGES) + 1


@pytest.mark.parametrize("which", ["task", "sampler", "schedule"])
@pytest.mark.parametrize("change", [{"kind": "other"}, {"revision": 7}, {"extra": None}])
def test_digest_changes_with_each_entry_of_a_part(which: str, change: dict[str, Any]) -> None:
    data = SPEC.to_json()
    data[which] = {**data[which], **change}
    assert ChainSpec.from_json(data).digest != SPEC.digest


def test_fields_at_their_default_are_left_out_of_the_json() -> None:
    optional = {f.name for f in dataclasses.fields(ChainSpec) if f.default is not dataclasses.MISSING}
    assert optional == {
        "precision", "threads", "lanes", "block_draws", "batchnorm", "exact", "compile", "start", "sample_only",
        "micro_batch", "start_chain", "early_stop", "pack", "prior",
    }  # fmt: skip
    assert not optional & SPEC.to_json().keys()
    every = changed("sample_only", changed("compile", dataclasses.replace(FULL, batchnorm="refuse", micro_batch=2)))
    alone = {"start_chain", "early_stop", "pack", "prior"}  # none goes with all of the others
    assert optional - alone <= every.to_json().keys() and through_text(every) == every
    member = changed("pack", changed("start_chain", changed("early_stop")))
    assert alone - {"prior"} <= member.to_json().keys() and through_text(member) == member
    local = changed("prior")
    assert "prior" in local.to_json() and through_text(local) == local and pickle.loads(pickle.dumps(local)) == local
    written_out = {**SPEC.to_json(), **{name: getattr(SPEC, name) for name in optional}, "sample_only": []}
    assert ChainSpec.from_json(written_out).digest == SPEC.digest


@pytest.mark.parametrize("number", [2, 0, -1, None, "1", True, 1.0])
def test_another_format_is_refused(number: object) -> None:
    with refused("chain spec", "format", repr(number)):
        ChainSpec.from_json({**SPEC.to_json(), "format": number})


def test_a_spec_without_format_or_that_is_no_object_is_refused() -> None:
    with refused("format"):
        ChainSpec.from_json({k: v for k, v in SPEC.to_json().items() if k != "format"})
    with refused("chain spec"):
        ChainSpec.from_json([1, 2])  # type: ignore[arg-type]


def test_unknown_field_is_refused() -> None:
    with refused("chain spec", "unknown field", "colour"):
        ChainSpec.from_json({**SPEC.to_json(), "colour": 1})


@pytest.mark.parametrize("field", [n for n in SPEC.to_json() if n != "format"])
def test_missing_field_is_refused(field: str) -> None:
    with refused("chain spec", field):
        ChainSpec.from_json({k: v for k, v in SPEC.to_json().items() if k != field})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "digits"}, ("task", "object")),
        ({"sampler": None}, ("sampler", "object")),
        ({"sampler": {"kind": "sgld"}}, ("revision",)),
        ({"sampler": {"kind": 3, "revision": 1}}, ("kind",)),
        ({"sampler": {"kind": "sgld", "revision": True}}, ("revision",)),
        ({"task": {"kind": "a:B", "revision": 1}}, ("fingerprint",)),
        ({"steps": "320"}, ("steps",)),
        ({"precision": ["fp32"]}, ("precision",)),
        ({"exact": 1}, ("exact",)),
        ({"sample_only": "fc.*", "start": "0" * 64}, ("sample_only",)),
        ({"sample_only": [1], "start": "0" * 64}, ("sample_only",)),
        ({"sample_only": ["fc.*"]}, ("sample_only", "init_from")),
        ({"compile": "default"}, ("compile", "exact")),
        ({"start": "fc"}, ("start", "sha256")),
        ({"start": 3}, ("start", "sha256")),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused(change: dict[str, Any], words: tuple[str, ...]) -> None:
    with refused(*words):
        ChainSpec.from_json({**SPEC.to_json(), **change})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *itertools.product(["steps", "steps_per_epoch", "batch_size", "threads", "lanes"], [0, -1, 1.0, True, "2"]),
        *itertools.product(["seed", "repeat", "chain", "block_draws"], [-1, 1.0, False, None]),
        ("precision", "fp16"),
        ("batchnorm", "freeze"),
        ("compile", "reduce-overhead"),
    ],
)
def test_wrong_value_is_refused_in_one_line_naming_the_field(field: str, value: object) -> None:
    with refused(field.replace("_", " ")):
        ChainSpec.from_json({**SPEC.to_json(), field: value})


def test_a_part_does_not_follow_later_changes_of_its_settings() -> None:
    settings = {"momentum": 0.9}
    part = Part(kind="sghmc", revision=1, settings=settings)
    settings["momentum"] = 0.1
    assert part.settings["momentum"] == 0.9
    with pytest.raises(TypeError):
        part.settings["momentum"] = 0.1  # type: ignore[index]


def test_examples_are_counted_in_every_lane() -> None:
    """16 batches of 32 hold 500 examples: the last one is short, and an epoch costs N."""
    assert SPEC.examples == 20 * 500
    assert FULL.examples == 20 * 500 * 10
    assert dataclasses.replace(SPEC, steps=321).examples == 20 * 500 + 32


@pytest.mark.parametrize("weighed_as", [1, 480, 513, 60_000])
def test_data_weighed_as_another_number_of_them_are_read_as_often(weighed_as: int) -> None:
    sampler = Part(kind="sghmc", revision=1, settings={"momentum": 0.9, "num_data": weighed_as})
    assert dataclasses.replace(SPEC, sampler=sampler).examples == 320 * 32


def test_environment_is_json() -> None:
    environment = Environment(torch="2.9", cuda=None, device="cpu", cpu_capability="AVX2", threads=1, numpy="2.4")
    assert Environment(**json.loads(json.dumps(environment.to_json()))) == environment


PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


def test_random_streams_never_depend_on_the_arm() -> None:
    """Task, sampler, schedule, length, precision, lanes…: whatever tells arms apart moves no stream."""
    for name in CHANGES.keys() - {"seed", "repeat", "chain"}:
        other = changed(name)
        for purpose, index in itertools.product(PURPOSES, (0, 5)):
            assert stream_seed(other, purpose, index) == stream_seed(SPEC, purpose, index), (name, purpose)


def test_random_streams_differ_by_purpose_index_chain_repeat_and_seed() -> None:
    seeds = [
        stream_seed(dataclasses.replace(SPEC, seed=seed, repeat=repeat, chain=chain), purpose, index)
        for seed, repeat, chain, purpose, index in itertools.product((0, 1, 11), (0, 1), (0, 1, 11), PURPOSES, (0, 1))
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)


def test_a_stream_seed_is_frozen() -> None:
    assert stream_seed(SPEC, "noise") == 2085589701147922448
