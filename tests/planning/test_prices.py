"""Money and energy of machines against sums by hand, and what preemptions cost against simulated spot machines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raychains.api.commands import plan, preemption_loss, quote, rate
from raychains.cli import main
from raychains.core.config import Plan, Run
from raychains.planning import Comparison
from raychains.planning.presets import default_arms
from raychains.planning.prices import Machine, PriceList, Quote, bill, spot_factor
from raychains.report.terminal import price_lines
from raychains.store import ChainStore, RunStore, Storage
from raychains.store.chains import device_seconds, preemption_losses
from tests.checks import refused

EIGHT = Machine(name="eight", devices=8, per_hour=40.0, spot_per_hour=16.0, preemptions_per_hour=0.5, watts=8000.0)


def write(folder: Path, machines: Any, currency: Any = "USD") -> str:
    path = folder / "prices.json"
    path.write_text(json.dumps({"currency": currency, "machines": machines}))
    return str(path)


# Sums by hand


def test_a_bill_is_a_sum_by_hand() -> None:
    """80 device hours on 16 devices: two machines for 5 hours; .5 preemptions an hour of 6 min each undo a twentieth."""
    found = bill(EIGHT, 80.0, devices=16, loss=360.0)
    assert (found.machines, found.days, found.on_demand, found.kwh) == (2, 5 / 24, 400.0, 80.0)
    assert found.spot == pytest.approx(160 / 0.95) and found.preempted == pytest.approx(160 / 0.95 - 160)


def test_idle_devices_of_a_machine_are_paid_for() -> None:
    assert bill(EIGHT, 80.0, devices=4).on_demand == 80 / 4 * 40.0
    assert bill(EIGHT, 80.0, devices=12).on_demand == pytest.approx(2 * 80 / 12 * 40.0)


def test_a_chain_over_several_machines_leaves_whenever_one_is_taken_back() -> None:
    assert spot_factor(0.5, 360.0, 2) == 1 / 0.9
    assert bill(EIGHT, 80.0, devices=16, workers=16, loss=360.0).spot == pytest.approx(160 / 0.9)
    assert bill(EIGHT, 80.0, devices=16, workers=8, loss=360.0).spot == pytest.approx(160 / 0.95)


def test_preemptions_that_cost_nothing_or_everything() -> None:
    assert spot_factor(0.0, 360.0) == spot_factor(0.5, 0.0) == 1
    assert spot_factor(10.0, 359.0) == pytest.approx(360.0) and spot_factor(10.0, 360.0) == math.inf
    assert bill(replace(EIGHT, preemptions_per_hour=10.0), 80.0, devices=8, loss=360.0).spot == math.inf


def test_what_the_price_list_lacks_stays_unknown() -> None:
    bare = bill(Machine(name="bare", devices=1, per_hour=2.0), 10.0, devices=1, loss=60.0)
    assert (bare.on_demand, bare.spot, bare.preempted, bare.kwh) == (20.0, None, None, None)
    unsaid = bill(EIGHT, 80.0, devices=8)
    assert (unsaid.spot, unsaid.preempted) == (160.0, None), "no loss is made up"
    assert bill(EIGHT, None, devices=9).on_demand is None and bill(EIGHT, None, devices=9).machines == 2


def test_the_cheapest_machine_counts_spot_prices_with_their_preemptions() -> None:
    often = replace(EIGHT, name="often", spot_per_hour=10.0, preemptions_per_hour=9.0)
    bills = [bill(machine, 80.0, devices=8, loss=360.0) for machine in (EIGHT, often)]
    found = Quote(currency="EUR", bills=bills, loss=360.0, preemptions=3)
    assert found.cheapest == (bills[0].spot, bills[0]), "often: 100 / (1 − .9) = 1,000 EUR"
    loss, cheapest = price_lines(found)
    assert "360 s" in loss and "mean of 3 measured" in loss and cheapest == "cheapest: eight, spot, 168.42 EUR"


# Simulated spot machines, whose preemptions are drawn one by one


def backlog(rng: np.random.Generator, work: float, rate: float, loss: float) -> tuple[float, int]:
    """Hours, and preemptions, until work is done to which each preemption adds ``loss`` hours, whenever it comes."""
    now, left, times = 0.0, work, 0
    while (gap := rng.exponential(1 / rate)) < left:
        now, left, times = now + gap, left - gap + loss, times + 1
    return now + left, times


def checkpointed(rng: np.random.Generator, work: float, rate: float, start: float) -> tuple[float, int]:
    """The same of a chain that starts for ``start`` hours after each preemption, which may hit that too, and goes on from its last checkpoint."""
    every = 0.1
    now, done, times, starting = 0.0, 0.0, 0, 0.0
    while True:
        gap = rng.exponential(1 / rate)
        if gap >= starting + work - done:
            return now + starting + work - done, times
        now, times = now + gap, times + 1
        done += math.floor(max(0.0, gap - starting) / every) * every
        starting = start


@pytest.mark.parametrize(("simulate", "parameter"), [(backlog, 0.2), (checkpointed, 0.15)])
def test_spot_hours_are_those_of_simulated_machines(
    simulate: Callable[..., tuple[float, int]], parameter: float
) -> None:
    """The mean loss is measured on half of the histories; the mean time of the others is predicted within four standard errors."""
    rng, work, often, n = np.random.default_rng(0), 10.0, 2.0, 4000
    hours, times = np.array([simulate(rng, work, often, parameter) for _ in range(2 * n)]).T
    measured, others = hours[:n] - work, hours[n:]
    loss = measured.sum() / times[:n].sum()
    if simulate is backlog:
        assert loss == pytest.approx(parameter)
    factor = spot_factor(often, 3600 * loss)
    assert factor > 1.3, "preempted work is preempted itself often enough to be seen"
    of_loss = np.std(measured - loss * times[:n], ddof=1) / (times[:n].mean() * math.sqrt(n))
    error = math.hypot(np.std(others, ddof=1) / math.sqrt(n), often * work * factor**2 * of_loss)
    assert error < 0.01 * work * factor
    assert abs(others.mean() - work * factor) < 4 * error


# Losses as the store has them


class Attempts:
    """A chain's attempts with progress files of known times."""

    def __init__(self, folder: Path, comparison: Comparison) -> None:
        self.spec = next(iter(comparison.chains().values()))
        self.store = ChainStore(Storage(str(folder)), self.spec.digest)
        self._folder = folder / "chains" / self.spec.digest / "progress"

    def begin(self, number: int, from_step: int, preemptions: int = 0, driver: str = "d", workers: int = 1) -> None:
        about = {"driver_id": driver, "from_step": from_step, "workers": workers}
        self.store.begin(self.spec, number, about | ({"preemptions": preemptions} if preemptions else {}))

    def progress(self, number: int, written: float, *records: tuple[int, float]) -> None:
        last = records[-1][0]
        self.store.publish_progress([{"step": step, "seconds": s} for step, s in records], last, number)
        os.utime(self._folder / f"{last:010d}-{number}.jsonl", (1000 + written, 1000 + written))

    def losses(self) -> tuple[float, int]:
        return preemption_losses(self.store)

    def seconds(self) -> float:
        return device_seconds(self.store)


@pytest.fixture
def comparison() -> Comparison:
    return default_arms.run(Run(task="digits", sampler="csghmc", epochs=4, cycles=1, chains=1, repeats=1)).comparison


@pytest.fixture
def chain(tmp_path: Path, comparison: Comparison) -> Attempts:
    return Attempts(tmp_path, comparison)


def test_a_loss_is_the_time_between_two_records_without_the_steps_between(chain: Attempts) -> None:
    """Stopped at 10 s; at 25 s the next attempt has made 3 s of steps: 12 s are lost. Twenty steps of 2 s each were not repeated."""
    chain.begin(1, 0)
    chain.progress(1, 10.0, (50, 5.0), (100, 10.0))
    chain.begin(2, 100, preemptions=1)
    chain.progress(2, 25.0, (110, 11.0), (130, 13.0))
    chain.progress(2, 60.0, (200, 20.0))
    assert chain.losses() == (pytest.approx(12.0), 1) and chain.seconds() == 20.0


def test_repeated_steps_are_lost_too_and_counted_in_device_seconds(chain: Attempts) -> None:
    """The records up to step 140 count no more: from step 100 on, 4 s of steps are repeated within the 9 s lost."""
    chain.begin(1, 0, workers=2)
    chain.progress(1, 10.0, (100, 10.0))
    chain.progress(1, 14.0, (140, 14.0))
    chain.begin(2, 100, preemptions=1, workers=2)
    chain.progress(2, 24.0, (150, 15.0))
    assert chain.losses() == (pytest.approx(9.0), 1) and chain.seconds() == 2 * (14.0 + 5.0)


def test_an_attempt_that_recorded_nothing_is_part_of_the_next_ones_loss(chain: Attempts) -> None:
    chain.begin(1, 0)
    chain.progress(1, 10.0, (100, 10.0))
    chain.begin(2, 100, preemptions=1)
    chain.begin(3, 100, preemptions=2)
    chain.progress(3, 31.0, (110, 11.0))
    chain.begin(4, 110, preemptions=3)
    assert chain.losses() == (pytest.approx(20.0), 2), "of the third preemption nothing is known yet"


@pytest.mark.parametrize(
    "after", [{}, {"preemptions": 1, "driver": "e"}, {"preemptions": 2}], ids=["lost worker", "later call", "both"]
)
def test_attempts_after_anything_else_than_a_preemption_tell_nothing(chain: Attempts, after: dict[str, Any]) -> None:
    chain.begin(1, 0)
    chain.progress(1, 10.0, (100, 10.0))
    chain.begin(2, 100, **after)
    chain.progress(2, 4000.0, (110, 11.0))
    assert chain.losses() == (0.0, 0) and chain.seconds() == 11.0


def test_a_plan_takes_the_mean_loss_of_a_run(tmp_path: Path, comparison: Comparison, chain: Attempts) -> None:
    RunStore(Storage(str(tmp_path)), "some").write_plan({"comparison": comparison.to_json()})
    options = Plan(task="digits", measured_on=str(tmp_path / "runs" / "some"))
    assert preemption_loss(options) == (None, 0) == preemption_loss(Plan(task="digits"))
    chain.begin(1, 0)
    chain.progress(1, 10.0, (100, 10.0))
    chain.begin(2, 100, preemptions=1)
    chain.progress(2, 25.0, (130, 13.0))
    assert preemption_loss(options) == (pytest.approx(12.0), 1)
    assert preemption_loss(replace(options, preemption_loss="2min")) == (120.0, 0)
    chain.progress(2, 10.0, (130, 13.0))
    assert preemption_loss(options) == (None, 0), "a copy's files, which were all written at once"


# The command


def test_a_plan_has_a_bill_for_each_machine(tmp_path: Path) -> None:
    """Two chains on two workers each make four devices; a machine's own speed comes before the plan's."""
    machines = {
        "slow": {"devices": 2, "per_hour": 3},
        "fast": {"devices": 1, "per_hour": 7, "images_per_second": 40},
    }
    options = Plan(
        task="digits", sampler=("sghmc",), schedule=("constant",), epochs=4, chains=2, repeats=1, micro_batch=25, batch_size=50,
        gpus_per_chain=2, images_per_second=20, prices=write(tmp_path, machines), store=str(tmp_path),
    )  # fmt: skip
    _, _, costs = plan(options)
    found = quote(options, costs, rate(options))
    assert found is not None and found.currency == "USD"
    hours, (slow, fast) = costs.gradients / 20 / 3600, found.bills
    assert (slow.device_hours, fast.device_hours) == (pytest.approx(hours), pytest.approx(hours / 2))
    assert (slow.machines, fast.machines) == (costs.chains, 2 * costs.chains)
    assert slow.on_demand == pytest.approx(hours / 2 * 3) and fast.on_demand == pytest.approx(hours / 2 * 7)
    with refused("prices", "price"):
        quote(replace(options, price=1.0), costs, 1.0)


def test_the_command_prints_the_table_and_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eight = {"devices": 8, "per_hour": 40, "spot_per_hour": 16, "preemptions_per_hour": 0.5, "watts": 8000}
    one = {"devices": 1, "per_hour": 6, "spot_per_hour": 2.5}
    file = write(tmp_path, {"eight": eight, "one": one})
    line = ["plan", "--task", "digits", "--epochs", "40", "--images-per-second", "20", "--devices", "8"]
    line += ["--prices", file, "--store", str(tmp_path / "runs")]
    assert main(line) == 0
    said = capsys.readouterr().out
    assert "prices in USD" in said and "kWh" in said
    assert "spot: without what preemptions cost, give --preemption-loss" in said and "cheapest: eight, spot, " in said
    assert main([*line, "--preemption-loss", "6min"]) == 0
    said = capsys.readouterr().out
    assert "spot: 360 s of each device of a chain lost per preemption, as given" in said
    assert "spot of one: without what preemptions cost, give preemptions_per_hour" in said
    assert main([*line, "--preemption-loss", "soon"]) == 2
    assert "--preemption-loss must be a finite number above 0" in capsys.readouterr().err
    assert main([*line, "--price", "3"]) == 2
    assert "--prices must be left out beside --price, got" in capsys.readouterr().err


RIGHT = {"devices": 8, "per_hour": 40}


@pytest.mark.parametrize(
    ("machines", "words"),
    [
        ({"a": {**RIGHT, "devices": 0}}, ["machines['a'].devices", "an integer of at least 1", "0"]),
        ({"a": {**RIGHT, "devices": 2.5}}, ["machines['a'].devices", "2.5"]),
        ({"a": {**RIGHT, "per_hour": "40"}}, ["machines['a'].per_hour", "a finite number above 0", "'40'"]),
        ({"a": {**RIGHT, "per_hour": math.nan}}, ["machines['a'].per_hour", "nan"]),
        ({"a": {**RIGHT, "spot_per_hour": -1}}, ["machines['a'].spot_per_hour", "-1"]),
        ({"a": {**RIGHT, "watts": None}}, ["machines['a'].watts", "None"]),
        ({"a": {**RIGHT, "preemptions_per_hour": -0.1}}, ["machines['a'].preemptions_per_hour", "at least 0", "-0.1"]),
        ({"a": {**RIGHT, "spot_per_hours": 3}}, ["name in machines['a']", "'spot_per_hours'", "did you mean", "spot_per_hour"]),
        ({"a": {"devices": 8}}, ["machines['a'] must have per_hour"]),
        ({"a\nb": []}, ["machines['a\\nb'] must be an object"]),
        ({}, ["machines must be an object of machines by name"]),
        ([], ["machines must be an object of machines by name"]),
    ],
)  # fmt: skip
def test_a_wrong_price_list_is_refused_by_its_field(tmp_path: Path, machines: Any, words: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        PriceList.read(write(tmp_path, machines))
    message = str(caught.value)
    assert "\n" not in message and all(word in message for word in words), message


def test_a_file_that_is_no_price_list_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, {"a": RIGHT})
    assert PriceList.read(path).machine(None) == Machine(name="a", devices=8, per_hour=40)
    with refused("machine", "'b'"):
        PriceList.read(path).machine("b")
    with refused("currency", "1 to 20 characters"):
        PriceList.read(write(tmp_path, {"a": RIGHT}, currency=""))
    for text in ("", "[" * 100_000, "\xff", "[]", '{"currency": "USD"}', '{"currency": "USD", "machines": {}, "x": 1}'):
        Path(path).write_text(text, encoding="latin-1")
        with refused("prices"):
            PriceList.read(path)
    Path(path).write_text(" " * 1_000_001)
    with refused("at most 1,000,000 bytes"):
        PriceList.read(path)
    for missing in (str(tmp_path / "none.json"), str(tmp_path), "\0", "~nobody-here/p.json", "\ud800"):
        with pytest.raises(ValueError, match=r"^(prices|file) must be"):
            PriceList.read(missing)
