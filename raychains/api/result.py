"""Result: a run in its store, with its tables, files, predictions and exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from raychains import tasks
from raychains.core.data_root import rooted
from raychains.core.errors import RaychainsError, UserError, format_error, printable
from raychains.core.validation import true_or_false
from raychains.inference import PosteriorPredictive, export, results
from raychains.inference.export import Exported
from raychains.inference.predictive import Predictive, Selection, dropped_chains, import_parts, select
from raychains.planning import Comparison
from raychains.plotting.tables import Table, with_error
from raychains.store import RunStore, Storage, split_run_path
from raychains.tasks import Task

if TYPE_CHECKING:
    from xarray import DataTree

    from raychains.inference.run_data import RunData
    from raychains.report.figures.mapping import Figures, Makers

HEADLINES = 3
"""Arms, and metrics of each, in a result's text."""
SHOWN = 2
"""Figures of a result in a notebook."""


class InStore(ABC):
    """A run or a sweep in its store, with how Python and notebooks show it."""

    store: RunStore
    failed: Mapping[str, str]
    _KEY_FIGURES: ClassVar[tuple[str, ...]]
    """Those that a notebook shows below the table, the most telling first: the first `SHOWN` that there are."""

    @property
    def path(self) -> str:
        """STORE/runs/NAME, or STORE/sweeps/NAME."""
        return self.store.location()

    @property
    def report(self) -> str:
        """The HTML report's path or URI."""
        return self.store.location("report.html")

    @property
    @abstractmethod
    def figures(self) -> Figures:
        """The page's figures by name, as `matplotlib.figure.Figure`, each drawn when it is asked for."""

    def show(self) -> None:
        """Display the table and all figures in a notebook; elsewhere print the table and where the report lies."""
        from raychains.report import notebook

        notebook.show(self._title(), self._page_table(), self.figures, self.report, self.suspicions())

    @abstractmethod
    def _about(self) -> str:
        """The task and the number of arms or points, for the first line of a text."""

    @abstractmethod
    def _headlines(self) -> list[str]:
        """Up to four lines of results."""

    @abstractmethod
    def _page_table(self) -> Table:
        """The table that the page begins with."""

    def suspicions(self) -> list[str]:
        """Return sentences on what is suspect: metrics without a number and why, losses that still fall,
        temperatures."""
        return []

    def _title(self) -> str:
        n = len(self.failed)
        failed = f", {n} chain{'s' * (n > 1)} failed" * (n > 0)
        return f"{type(self).__name__} {self.store.name!r}: {self._about()}{failed}"

    def __repr__(self) -> str:
        try:
            found, more = self.suspicions(), "and more, see suspicions()"
            lines = [
                self._title(),
                *self._headlines(),
                *found[:HEADLINES],
                *[more] * (len(found) > HEADLINES),
                self.path,
            ]
        except Exception as error:  # a debugger or a notebook may show it at any time
            lines = [f"{type(self).__name__} {self.store.name!r}: {format_error(error)}"]
        return "\n  ".join(map(printable, lines))

    def _repr_html_(self) -> str | None:
        from raychains.report import notebook

        try:
            table, figures = self._page_table(), self.figures
            key = list(islice((name for name in self._KEY_FIGURES if name in figures), SHOWN))
            more: dict[str, Any] = {"width": "28rem", "suspicions": self.suspicions()}
            return notebook.html(self._title(), table, figures, key, self.report, **more)
        except RaychainsError:  # a notebook falls back to the text
            return None


@dataclass(frozen=True, repr=False)
class Result(InStore):
    """A run in its store: its table, its files, its posterior predictive."""

    _KEY_FIGURES = ("llc_trace", "llc", "fidelity", "reliability", "density", "samples", "spread", "learning")

    store: RunStore
    comparison: Comparison
    failed: Mapping[str, str]
    """Chains that were given up in this session, and why."""
    data_root: str | None = None
    """The folder of the task's data, if the user named it."""
    own_figures: Makers = field(default_factory=dict)
    """Those of the user's measures, of the evaluation in this session."""

    def results(self) -> pd.DataFrame:
        """Return metrics per arm and repeat."""
        return results.read(self.store, "results")

    def table(self, *, full: bool = False) -> pd.DataFrame:
        """Return one row per arm: every metric of the page's table as a text, ``4.18 ± 0.04`` (mean and standard
        error).

        Args:
            full: return numbers instead: cost, repeats, samples, chain seconds, where the cost does not say them the
                gradient evaluations of a repeat, and of all metrics ``<metric>``, the mean, and ``<metric>_se``, its
                standard error (nan with one repeat).
        """
        from raychains.inference.run_data import metrics_of

        true_or_false("full", full)
        found = self.results()
        with rooted(self.data_root):
            metrics = metrics_of(self.store, self.comparison, set(found.columns))
        measured = tuple(m for m in metrics if m.name in found.columns) if len(found) else metrics
        table = results.summary(self.comparison, found, measured)
        return table if full else results.compact(table, [m for m in measured if not m.minor])

    @property
    def choice(self) -> pd.DataFrame:
        """The candidates that `raychains.fit` tried before this run, a row for each rung of pilots that one was in.

        Columns: rung, candidate, epochs (cost of its pilots, in passes over all training data), density (mean held-out
        log density in nats), se (its standard error over examples), mixed (the density of its mixture with the first
        candidate), share (its share of that mixture, after the last rung of the run's predictive), kept, why.

        Raises:
            UserError: the run was not made by `raychains.fit`.
        """
        found = self.store.table("choice")
        if found is None:
            raise UserError(f"run must be one that raychains.fit made, got {self.path}: only these have choices")
        return found.to_pandas()

    @property
    def figures(self) -> Figures:
        """The figures of the run's page, those of its measures included, by name, each drawn when it is asked for.

        Example: ``result.figures["reliability"].savefig("reliability.pdf")``
        """
        from raychains.report.figures import of_run

        return of_run(self._data(), self.own_figures)

    def _data(self) -> RunData:
        from raychains.inference.run_data import RunData

        run = RunData(self.store, self.comparison)
        with rooted(self.data_root):
            _ = run.measured  # the task's, where the plan of an older version does not name them
        return run

    def _about(self) -> str:
        arms = len(self.comparison.arms)
        return f"task {self.comparison.task}" + f", {arms} arms" * (arms > 1)

    def _headlines(self) -> list[str]:
        from raychains.inference.run_data import built_in_metrics, read_metrics

        found, arms = self.results(), self.comparison.arms
        if not len(found):
            return ["not evaluated yet"]
        known = read_metrics(self.store.plan()) or built_in_metrics(found.columns)
        metrics = [m for m in known if m.name in found.columns and not m.minor][:HEADLINES]
        table = results.summary(self.comparison, found, tuple(metrics))
        lines = []
        for arm in arms[:HEADLINES]:
            row = table.loc[arm.name]
            values = [f"{m.label} {with_error(row[m.name], row[f'{m.name}_se'], m)}" for m in metrics]
            lines.append(f"{arm.label}: {', '.join(values) if row['repeats'] else 'not evaluated yet'}")
        more = len(arms) - HEADLINES
        return [*lines, *[f"and {more} more arm{'s' * (more > 1)}"] * (more > 0)]

    def _page_table(self) -> Table:
        from raychains.report import run_tables

        return run_tables.comparison(self._data())[0]

    def suspicions(self) -> list[str]:
        from raychains.report import suspicions

        return suspicions.of_run(self._data())

    def predictive(self, arm: str | None = None, group: int = 0) -> Predictive:
        """Return the posterior predictive of one arm (default the first) and group of repeats.

        Chains that were dropped from the arm's results are left out.

        Raises:
            UserError: an unknown arm or group, or a task that predicts nothing.
        """
        return Predictive(self._select(arm, group, None))

    def predict(self, x: Any, arm: str | None = None) -> np.ndarray[Any, Any]:
        """Return posterior-predictive probabilities [n, classes] of inputs ``x`` [n, …] under the first arm, or
        ``arm``.

        Of labels per position they are [n, positions …, classes]; of other tasks as `predictive` says.
        """
        return self.predictive(arm)(x)

    def posterior(self, arm: str | None = None, group: int = 0, *, first: int | None = None) -> PosteriorPredictive:
        """Return the samples of one arm (default the first) as one `torch.nn.Module`, all of them in memory.

        Raises:
            UserError: as `predictive`, or ``first`` is not a number of its samples.
        """
        return export.posterior(self._select(arm, group, first))

    def export(
        self,
        to: str | None = None,
        arm: str | None = None,
        group: int = 0,
        *,
        first: int | None = None,
        dtype: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Exported:
        """Write the samples of one arm as one file; `PosteriorPredictive.load` makes the module of `posterior` of it.

        Args:
            to: a new file; default NAME.safetensors in the current folder.
            arm: the arm's name; default the first.
            group: which group of repeats.
            first: take this many samples, the first draws of all chains first; default all.
            dtype: fp32, bf16 or fp16; default the samples' own.
            progress: called with (samples written, samples).

        Raises:
            UserError: as `posterior`, or a file that exists or cannot be written.
        """
        to = to if to is not None else f"{self.store.name}.safetensors"
        selection = self._select(arm, group, first)
        return export.export(selection, to, run=self.store.name, dtype=dtype, progress=progress)

    def to_arviz(
        self,
        arm: str | None = None,
        group: int = 0,
        *,
        parameters: str | Sequence[str] | None = None,
        **settings: Any,
    ) -> DataTree:
        """Return the samples of one arm (default the first) as ArviZ's DataTree, by the extra ``arviz``.

        Args:
            arm: the arm's name.
            group: which group of repeats.
            parameters: shell patterns of names of a network's parameters, such as ``fc.*``: each is in ``posterior`` by
                its name, [chain, draw, its own dimensions]. Default a few numbers of θ and of what it predicts.
            settings: of `raychains.api.arviz_export.of_run`: ``variable``, ``predict``, ``seed``.

        Raises:
            UserError: an unknown arm, group or variable, an unfinished chain, patterns that match nothing or too many
                numbers, or the extra is not installed.
        """
        from raychains.api.arviz_export import of_run

        with rooted(self.data_root):
            tasks.check_known(self.comparison.task_spec)
            task = tasks.build(self.comparison.task_spec)
            about = {"dropped": self.dropped(), "parameters": parameters, **settings}
            return of_run(self.store.root, self.comparison, task, arm, group, **about)

    def _select(self, arm: str | None, group: int, first: int | None) -> Selection:
        with rooted(self.data_root):
            return select(self.store.root, self.comparison, arm, group, first, dropped=self.dropped())

    def dropped(self) -> set[str]:
        """Return chains that were given up although their arm has results."""
        return dropped_chains(self.store, self.comparison)


def load(path: str, task: Task | None = None, *, trust: bool = False) -> Result:
    """Return the run at STORE/runs/NAME.

    Args:
        path: the path, or a URI.
        task: the run's task, where it can only be the object itself (`Task.from_module`), or is of a module of yours
            that is not imported yet: predictions need it, stored results do not.
        trust: import the modules of users' tasks, samplers and schedules that the run names, which runs their code.
            Without it nothing is imported because a store names it.

    Raises:
        UserError: there is none, or ``task`` is another than the run's; with ``trust`` a module that cannot be
            imported.
    """
    true_or_false("trust", trust)
    store, name = split_run_path(path)
    folder = RunStore(Storage(store), name)
    comparison = Comparison.from_json(folder.plan(path).get("comparison"))
    if trust:
        import_parts(comparison, task=task is None)
    if task is not None:
        tasks.give_again(task, comparison.task_spec)
    return Result(folder, comparison, {})
