"""One sweep's folder: its plan, what every trial reported after every cycle, its tables and its best point.

Reports are immutable files, one per chain and cycle, written before anybody decides on them: a sweep whose driver was
killed has lost none. ``reports.parquet`` and ``results.parquet`` are derived from them at the sweep's end.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from raychains.errors import UserError
from raychains.retry import KeepTrying
from raychains.store.filesystem import Root
from raychains.store.runs import RunStore, split_run_path

log = logging.getLogger(__name__)

BEST = "best.json"
_REPORT = re.compile(r"(\d+)-(\d+)\.json")


class SweepStore(RunStore):
    """Reads and writes ``sweeps/<name>/``: what a run's folder has, best.json, reports/, stops/ and asked/."""

    kind: ClassVar[str] = "sweep"

    # What trials report

    def publish_report(
        self,
        digest: str,
        report: Mapping[str, Any],
        incarnation: int,
        *,
        keep_trying: KeepTrying | None = None,
    ) -> None:
        """Make the report of one chain's cycle durable.

        Args:
            digest: the chain's.
            report: with its ``cycle``, counted from 0.
            incarnation: of the chain; of two reports on one cycle the higher one's counts.
            keep_trying: as for `Root.publish`.
        """
        name = f"reports/{digest}/{report['cycle']:05d}-{incarnation}.json"
        self.root.publish(self._name(name), _json(report), keep_trying=keep_trying)

    def reports(self, digest: str) -> list[dict[str, Any]]:
        """What a chain reported, by cycle; torn files are left out."""
        found: dict[int, tuple[int, dict[str, Any]]] = {}
        for name in self.root.names(self._name(f"reports/{digest}")):
            match = _REPORT.fullmatch(name)
            if match is None:
                continue
            cycle, incarnation = int(match[1]), int(match[2])
            report = self._object(f"reports/{digest}/{name}")
            if report is not None and incarnation >= found.get(cycle, (-1, {}))[0]:
                found[cycle] = incarnation, report
        return [found[cycle][1] for cycle in sorted(found)]

    # What the driver decided

    def publish_stop(self, digest: str, why: Mapping[str, Any]) -> None:
        """Note that the scheduler stopped a chain: it is not run again."""
        self.root.publish(self._name(f"stops/{digest}.json"), _json(why))

    def stops(self) -> dict[str, dict[str, Any]]:
        """The chains that the scheduler stopped, by digest."""
        return self._objects("stops")

    def publish_asked(self, point: int, values: Mapping[str, Any]) -> None:
        """Note a point that the search chose, before it is run."""
        self.root.publish(self._name(f"asked/{point:06d}.json"), _json(values))

    def asked(self) -> list[dict[str, Any]]:
        """The points that the search chose so far, in order; of a gap on nothing counts."""
        found = self._objects("asked")
        points: list[dict[str, Any]] = []
        while (name := f"{len(points):06d}") in found:
            points.append(found[name])
        return points

    # The best point

    def write_best(self, options: Mapping[str, Any]) -> str:
        """Publish the options of the best point; where they lie."""
        return self.write_file(BEST, _json(options))

    def best(self) -> dict[str, Any] | None:
        """The options of the best point; None where no point has any result."""
        return self._object(BEST)

    def damaged(self, name: str) -> UserError:
        return UserError(f"sweep {self.name}: {name}.parquet is damaged; repeat its command with --resume to write it")

    def _objects(self, folder: str) -> dict[str, dict[str, Any]]:
        """The whole JSON objects of a folder by their files' stems."""
        names = [n for n in self.root.names(self._name(folder)) if n.endswith(".json")]
        found = {name.removesuffix(".json"): self._object(f"{folder}/{name}") for name in names}
        return {stem: value for stem, value in found.items() if value is not None}

    def _object(self, name: str) -> dict[str, Any] | None:
        """A JSON object; None where there is none, or a torn one, which counts as none."""
        try:
            value = json.loads(self.root.read(self._name(name)))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            log.warning("passed over, since it is torn: %s", self.location(name))
            return None
        return value


def load_sweep(path: str) -> SweepStore:
    """The folder STORE/sweeps/NAME.

    Raises:
        UserError: the path has another form.
    """
    store, name = split_run_path(path, kind=SweepStore.kind)
    return SweepStore(Root(store), name)


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(dict(value), indent=1, sort_keys=True) + "\n").encode()
