"""The command as a real process: Ctrl-C, a name that is taken, then the end, with the samples of an undisturbed run.

Drivers that are killed are in tests/chaos and tests/concurrency.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import raychains as rc
from raychains.cli import main
from raychains.store import ChainStore, Storage
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.pool import unpaged
from tests.processes import RAYCHAINS, SECONDS, sessions, until

COMMAND = """run --task tests.callbacks.tasks:Slowing --sampler sghmc --schedule cyclical --chains 1 --repeats 2
--concurrent 1 --epochs 24 --cycles 4 --samples-per-cycle 2 --batch-size 50 --checkpoint-every 0.5 --name r"""


@pytest.mark.usefixtures("ray_session")
def test_stopped_and_resumed_gives_the_samples_of_an_undisturbed_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, go = tmp_path / "store", tmp_path / "go"
    words = [*COMMAND.split(), "--task-settings", f"go={go}", "at=130", "--store", str(store)]
    with sessions() as start:
        first = start(*RAYCHAINS, *words)

        def on_their_way() -> bool:
            assert first.poll() is None, first.communicate()
            return len(list(store.glob("chains/*/samples/*"))) >= 4

        until(on_their_way, "samples", every=0.05)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=SECONDS)
    assert first.returncode == 130, err
    assert "go on from their last checkpoints" in err and "--resume, --name r" in err
    assert "Traceback" not in err + out and list(store.glob("chains/*/checkpoints/*"))

    go.touch()
    assert main(words) == 2 and "continue it with --resume" in capfd.readouterr().err
    with unpaged():
        assert main([*words, "--resume"]) == 0
    out = capfd.readouterr().out
    assert "report:" in out and "2/2" in out

    plan = rc.load(str(store / "runs" / "r")).comparison
    assert len(plan.chains()) == 2
    assert max(ChainStore(Storage(store), d).last_attempt() for d in plan.chains()) == 2
    found = undisturbed_hashes(plan)
    assert len(found) == 2 * 4 * 2 and stored_hashes(store, plan) == found
