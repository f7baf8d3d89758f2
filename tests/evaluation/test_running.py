"""The running predictive of a trial is what evaluating all of its samples gives, to the last bit."""

from __future__ import annotations

import pytest

from raychains import tasks
from raychains.api import plans
from raychains.chain import chain
from raychains.core.config import Run
from raychains.core.sample import Sample, tensors_sha256
from raychains.evaluation.running import RunningEnsemble


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    options = Run(epochs=20, cycles=2, exploration=0.5, samples_per_cycle=3, val_split=0.2)
    spec = plans.run(options).comparison.arms[0].chains[0][0]
    return [event for event in chain.Chain(spec) if isinstance(event, Sample)]


@pytest.mark.parametrize("split", ["val", "test"])
def test_after_every_sample_the_metrics_are_those_of_all_samples_so_far(samples: list[Sample], split: str) -> None:
    evaluation = tasks.make("digits", val_split=0.2).splits()[split]
    evaluation.bins = 7
    ensemble = RunningEnsemble(evaluation)
    shards = range(evaluation.shards)
    blocks = [[evaluation.predict(s.tensors, shard) for shard in shards] for s in samples]
    for n, sample in enumerate(samples, start=1):
        ensemble.add(sample.tensors, tensors_sha256(sample.tensors))
        [expected] = evaluation.summarise([evaluation.reduce([b[s] for b in blocks[:n]], s) for s in shards])
        assert ensemble.metrics() == expected and ensemble.samples == n


def test_other_evaluations_are_given_all_blocks(samples: list[Sample]) -> None:
    evaluation = tasks.make("linear-regression").splits()["target"]
    options = Run(task="linear-regression", steps=400, repeats=1, cycles=2)
    spec = plans.run(options).comparison.arms[0].chains[0][0]
    drawn = [event for event in chain.Chain(spec) if isinstance(event, Sample)]
    ensemble = RunningEnsemble(evaluation)
    for sample in drawn:
        ensemble.add(sample.tensors, tensors_sha256(sample.tensors))
    [expected] = evaluation.summarise([evaluation.reduce([evaluation.predict(s.tensors, 0) for s in drawn], 0)])
    assert ensemble.metrics() == pytest.approx(expected, nan_ok=True) and ensemble.samples == len(drawn)


def test_the_name_of_the_samples_tells_them_and_their_order_apart(samples: list[Sample]) -> None:
    names = set()
    for order in (samples[:3], samples[:2], samples[1:3], samples[2::-1]):
        ensemble = RunningEnsemble(tasks.make("digits", val_split=0.2).splits()["val"])
        for sample in order:
            ensemble.add(sample.tensors, tensors_sha256(sample.tensors))
        names.add(ensemble.sha256)
    assert len(names) == 4
