"""The command as a real process: Ctrl-C, a name that is taken, then the end, with the samples of an undisturbed run.

Drivers that are killed are in tests/chaos and tests/concurrency.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import raychains as rc
from raychains.store import ChainStore, Storage
from tests.orchestration.worlds import stored_hashes, undisturbed_hashes
from tests.processes import RAYCHAINS, SECONDS, sessions

COMMAND = """run --task mixture25 --sampler sghmc --schedule cyclical --chains 2 --repeats 4 --steps 30000 --cycles 3
--checkpoint-every 0.5 --name r"""


def test_stopped_and_resumed_gives_the_samples_of_an_undisturbed_run(tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = [*RAYCHAINS, *COMMAND.split(), "--store", str(store)]
    with sessions() as start:
        first, deadline = start(*command), time.monotonic() + SECONDS
        while len(list(store.glob("chains/*/samples/*"))) < 4:
            assert first.poll() is None and time.monotonic() < deadline, first.communicate()
            time.sleep(0.05)
        first.send_signal(signal.SIGINT)
        out, err = first.communicate(timeout=SECONDS)
        assert first.returncode == 130, err
        assert "go on from their last checkpoints" in err and "--resume, --name r" in err
        assert "Traceback" not in err + out and list(store.glob("chains/*/checkpoints/*"))
        taken = start(*command)
        assert taken.wait(timeout=SECONDS) == 2 and "continue it with --resume" in (taken.stderr or sys.stdin).read()
        again = start(*command, "--resume")
        out, err = again.communicate(timeout=SECONDS)
        assert again.returncode == 0, err
        assert "report:" in out and "4/4" in out

    plan = rc.load(str(store / "runs" / "r")).comparison
    assert len(plan.chains()) == 2
    assert max(ChainStore(Storage(store), d).last_attempt() for d in plan.chains()) == 2
    assert stored_hashes(store, plan) == undisturbed_hashes(plan)
