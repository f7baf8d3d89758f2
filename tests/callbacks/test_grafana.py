"""The dashboard and the alert rules name the metrics that there are, and Ray exports these under the names that they
use."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from raychains import callbacks
from raychains.callbacks import CallbackList
from raychains.orchestration.cluster.prometheus import CHAIN, METRIC, STAGE, RayMetrics
from tests.callbacks.events import METRICS, digests, planned, status, tick
from tests.processes import METRICS_EVERY, until

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
TAGS = {
    **{name: {"run", "chain"} for name in CHAIN},
    STAGE[0]: {"run", "chain", "stage"},
    METRIC[0]: {"run", "arm", "metric"},
}


def named(expression: str) -> set[str]:
    """The metrics of an expression, without Ray's prefix."""
    return set(re.findall(r"\bray_(raychains_\w+)", expression))


def test_the_dashboard_shows_every_metric_with_tags_that_it_has() -> None:
    board = json.loads((GRAFANA / "raychains.json").read_text())
    panels = board["panels"]
    assert len({p["id"] for p in panels}) == len({p["title"] for p in panels}) == len(panels)
    shown: set[str] = set()
    for target in (t for p in panels for t in p["targets"]):
        metrics = named(target["expr"])
        assert metrics and target["expr"].count('{run=~"$run"}') == len(metrics), target["expr"]
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert all(legend <= TAGS.get(name, {"run"}) for name in metrics), target
        shown |= metrics
    assert shown == METRICS
    places = [
        {
            (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
            for x in range(p["gridPos"]["w"])
            for y in range(p["gridPos"]["h"])
        }
        for p in panels
    ]
    assert len(set().union(*places)) == sum(map(len, places)) and max(x for place in places for x, _ in place) < 24
    assert {v["name"] for v in board["templating"]["list"]} == {"datasource", "run"}


def test_grafana_knows_every_field_of_the_dashboard() -> None:
    """Its own types for dashboards keep all of the file: they drop a field that they do not have, and Grafana would."""
    register_default_plugins()
    board = json.loads((GRAFANA / "raychains.json").read_text())
    assert dropped(board) == []
    board["panels"][0]["gridpos"] = board["panels"][0].pop("gridPos")
    board["panels"][3]["options"]["legends"] = {}
    board["templating"]["list"][1]["multy"] = True
    assert dropped(board) == [".panels[0].gridpos", ".panels[3].options.legends", ".templating.list[1].multy"]


def dropped(board: dict[str, Any]) -> list[str]:
    """Fields of a dashboard that Grafana's types lack, or change."""

    def lost(given: Any, kept: Any, path: str) -> list[str]:
        if isinstance(given, dict) and isinstance(kept, dict):
            return [
                p for k, v in given.items() for p in (lost(v, kept[k], f"{path}.{k}") if k in kept else [f"{path}.{k}"])
            ]
        if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
            return [p for i, (a, b) in enumerate(zip(given, kept, strict=True)) for p in lost(a, b, f"{path}[{i}]")]
        return [] if given == kept else [path]

    return sorted(lost(board, json.loads(JSONEncoder().encode(Dashboard.from_json(board))), ""))


def test_alert_rules_have_what_prometheus_wants_and_name_metrics_that_there_are() -> None:
    (group,) = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    assert group["name"] == "raychains" and len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) == 5
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert named(rule["expr"]) and named(rule["expr"]) <= METRICS
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m")) and rule["labels"]["severity"] in (
            "warning",
            "critical",
        )
        assert {"summary", "description"} == rule["annotations"].keys()


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("ticks", [False, pytest.param(True, marks=pytest.mark.long)], ids=["at once", "all the time"])
def test_prometheus_can_scrape_them_where_ray_exports_metrics(ticks: bool) -> None:
    import ray

    [node] = ray.nodes()
    address = f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"

    def scraped() -> str:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return str(answer.read().decode())

    name = f"scraped-{time.monotonic_ns()}"
    with CallbackList(RayMetrics(name)) as several:
        several.on(planned())
        several.on(callbacks.Ready(slots=2, slot="1 CPU"))
        several.on(tick(status(digests()[0], 10)))
        several.on(callbacks.WorkerLost(slot=0, reason="why"))
        several.on(callbacks.ViewDone(arm="arm", group=0, metrics=[{"nll": 0.5}], chain_seconds=1))

        def all_there() -> bool:
            lines = [line for line in scraped().splitlines() if f'run="{name}"' in line]
            return {line.partition("{")[0].removeprefix("ray_") for line in lines} >= METRICS

        until(all_there, "every metric", seconds=120, every=0.5)
        deadline = time.monotonic() + 2 * METRICS_EVERY + 2
        while ticks and time.monotonic() < deadline:  # Ray forgets what is not set again
            several.on(tick(status(digests()[0], 10)))
            time.sleep(1)
        assert not ticks or all_there()
        lines = scraped().splitlines()
    lost = [line for line in lines if line.startswith("ray_raychains_workers_lost") and name in line]
    assert lost and float(lost[0].rpartition(" ")[2]) == 1
