"""A chain that tells Tune or Train how it goes: each report once, whatever becomes of its attempts."""

from __future__ import annotations

from pathlib import Path

from raychains.core.config import Run
from raychains.orchestration.chains.reported_chain import ReportedChain, Reporter
from raychains.planning.reports import report_steps
from raychains.store import ChainStore
from tests.orchestration.tasks import Cliff
from tests.orchestration.worlds import comparison, root


def test_what_was_reported_before_a_divergence_is_not_reported_again(tmp_path: Path) -> None:
    task = Cliff(1.6)
    [spec] = comparison(task, chains=1, steps=400, block=0, lanes=1, cycles=8).chains().values()
    options = Run(store=str(root(tmp_path).uri), on_divergence="restart-cycle", max_failures=20)
    steps = report_steps(spec)
    reporter = Reporter(spec=spec, length=400, steps=steps)
    chain = ReportedChain(reporter=reporter, options=options, task=task, run="test", driver_id="test")
    reports = list(chain.reports(0))
    [diagnosis, *_] = ChainStore(root(tmp_path), spec.digest).diagnoses()
    assert diagnosis["step"] > steps[0].step, "it diverges after its first report"
    assert [report["cycle"] for report in reports] == list(range(8))
    assert [report["epoch"] for report in reports] == sorted(report["epoch"] for report in reports)
