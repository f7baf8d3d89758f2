"""Ray metrics: what is set, when, and how series of chains end."""

from __future__ import annotations

from typing import Any

import pytest

from raychains import callbacks
from raychains.callbacks import CallbackList
from raychains.orchestration.cluster.prometheus import EVERY, RayMetrics
from tests.callbacks.events import Clock, digests, planned, status, tick


class Recorded:
    """What gauges are set to: (name, tags) → value; and how often any was set."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, ...], float] = {}
        self.keys: dict[str, tuple[str, ...]] = {}
        self.count = 0

    def gauge(self, name: str, description: str, tag_keys: tuple[str, ...]) -> Any:
        assert description and name not in self.keys
        self.keys[name] = tag_keys
        recorded = self

        class Gauge:
            def set(self, value: float, tags: dict[str, str]) -> None:
                assert set(tags) == set(tag_keys)
                recorded.count += 1
                recorded.values[(name, *(tags[k] for k in tag_keys))] = value

        return Gauge()


def test_gauges_follow_the_run_and_end_with_it() -> None:
    clock, recorded, (one, two) = Clock(), Recorded(), digests()
    metrics = RayMetrics("run", recorded.gauge, clock)
    a, b, at = one[:12], two[:12], recorded.values
    with CallbackList(metrics) as several:
        several.on(planned())
        several.on(tick())
        assert not recorded.keys  # Ray is not up yet
        several.on(callbacks.Ready(slots=2, slot="1 CPU"))
        several.on(tick(status(one, 10, stage="exploration"), status(two, 0, stage=""), samples=3))
        assert at["raychains_step", "run", a] == 10 and ("raychains_step", "run", b) not in at
        assert at["raychains_steps_per_second", "run", a] == 100 and at["raychains_budget_spent", "run"] == 500
        assert at["raychains_budget_planned", "run"] == 8000 and at["raychains_slots", "run"] == 2
        before = recorded.count
        several.on(tick(status(one, 11)))
        assert recorded.count == before  # too soon
        clock.now += EVERY
        several.on(tick(status(one, 50)))
        assert at["raychains_stage", "run", a, "exploration"] == 0 and at["raychains_stage", "run", a, "sampling"] == 1
        assert at["raychains_steps_per_second", "run", b] == 0  # it runs no more
        assert at["raychains_cycle", "run", a] == 1 and at["raychains_samples", "run", a] == 1
        several.on(callbacks.ChainFinished(digest=one, seconds=1))
        assert at["raychains_step", "run", a] == 80 and at["raychains_stage", "run", a, "finished"] == 1
        assert at["raychains_stage", "run", a, "sampling"] == 0 and at["raychains_steps_per_second", "run", a] == 0
        several.on(callbacks.ChainFailed(digest=two, reason="why"))
        assert at["raychains_stage", "run", b, "failed"] == 1
        several.on(callbacks.ViewDone(arm="arm", group=0, metrics=[{"nll": 0.5}, {"nll": 1.0}], chain_seconds=1))
        assert at["raychains_metric", "run", "arm", "nll"] == 0.75
        several.on(tick(finished=1, failed=1, gradients=4000))
    assert at["raychains_chains_finished", "run"] == at["raychains_chains_failed", "run"] == 1
    assert at["raychains_budget_spent", "run"] == 4000 and at["raychains_slots", "run"] == 0


def test_what_was_set_once_is_set_again_with_every_tick_since_ray_forgets_it() -> None:
    clock, recorded = Clock(), Recorded()
    with CallbackList(RayMetrics("run", recorded.gauge, clock)) as several:
        several.on(planned())
        several.on(callbacks.Ready(slots=2, slot="1 CPU"))
        several.on(callbacks.WorkerLost(slot=0, reason="why"))
        several.on(callbacks.Waiting(reason="the storage is away"))
        several.on(callbacks.ViewDone(arm="arm", group=0, metrics=[{"nll": 0.5}], chain_seconds=1))
        several.on(tick(status(digests()[0], 10)))
        set_so_far = dict(recorded.values)
        recorded.values.clear()
        clock.now += EVERY
        several.on(tick(status(digests()[0], 10)))
        assert recorded.values == set_so_far
        assert recorded.values["raychains_waiting", "run"] == recorded.values["raychains_workers_lost", "run"] == 1


@pytest.mark.usefixtures("ray_session")
def test_rays_own_gauges_take_every_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.util.metrics import Gauge

    taken: dict[str, float] = {}
    record = Gauge.set

    def seen(gauge: Any, value: float, tags: Any = None) -> None:
        record(gauge, value, tags)
        taken[gauge.info["name"]] = value

    monkeypatch.setattr(Gauge, "set", seen)
    with CallbackList(RayMetrics("run")) as several:
        several.on(planned())
        several.on(callbacks.Ready(slots=2, slot="1 CPU"))
        several.on(tick(status(digests()[0], 10)))
        several.on(callbacks.ViewDone(arm="arm", group=0, metrics=[{"nll": 0.5}], chain_seconds=1))
    names = "step cycle stage steps_per_second samples budget_spent chains_finished chains_failed slots"
    assert {f"raychains_{name}" for name in names.split(" ")} <= set(taken)
    assert taken["raychains_step"] == 10 and taken["raychains_metric"] == 0.5
