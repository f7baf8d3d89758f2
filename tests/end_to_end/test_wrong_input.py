"""Wrong input: one line that names the field and what is allowed, exit status 2, no traceback, nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raychains.cli import main

CASES = """
compare --exploration 1.2 | --exploration must lie in [0, 1), got 1.2: it is the share of each cycle
compare --cycles 0 | --cycles must be an integer of at least 1, got 0
compare --cycles 2001 | --cycles must be at most the number of steps (2000), got 2001
compare --cycles 1999 | --cycles must divide the run
compare --chains 0 | --chains must be an integer in [1, 10000], got 0
compare --task digit | got 'digit'; did you mean 'digits'?
compare --sampler sghcm | did you mean 'sghmc'?
compare --sampler sgld sgld | --sampler must name each choice once
compare --schedule cyclic | did you mean 'cyclical'?
compare --lr -0.1 | --lr must be a finite number above 0, got -0.1
compare --lr 1e300 | --lr must be at most 1e+30, got 1e+300
compare --lr nan | --lr must be a finite number above 0, got nan
compare --momentum 1 | --momentum must lie in [0, 1), got 1.0
compare --temperature -1 | --temperature must be a finite number of at least 0
compare --epochs 41 | --epochs must be even
compare --epochs ten | --epochs must be an integer, got 'ten'
compare --steps 100 | --steps must be left out for task digits, which has data, got 100: give epochs
compare --task mixture25 --epochs 10 | --epochs must be left out for task mixture25
compare --batch-size 501 | --batch-size must lie in [1, 500], the number of training data, got 501
compare --samples-per-cycle 11 | --samples-per-cycle must be at most 10, got 11
compare --repeats 0 | --repeats must be an integer in [1, 1000000]
compare --seed -1 | --seed must be an integer of at least 0
compare --task mixture25 --lanes 3 | --lanes must divide the number of repeats (10), got 3
compare --lanes 2 | --lanes must be 1 for task digits
compare --cpus-per-chain 0 | --cpus-per-chain must be an integer of at least 1
compare --checkpoint-every 0 | --checkpoint-every must be a finite number above 0
compare --checkpoint-every soon | seconds or with a unit as in 60s, 5min or 1h, got 'soon'
run --checkpoint-every 5m | --checkpoint-every must be a finite number above 0
run --slot-timeout soon | --slot-timeout must be a finite number above 0, in seconds or with a unit
run --concurrent 0 | --concurrent must be an integer of at least 1, got 0
run --accelerator-type T4 --gpus-per-chain 0 | --accelerator-type must be left out if nothing
reproduce | NAMES must be all or some of table1
reproduce tabel2 | got 'tabel2'; did you mean 'table2'?
reproduce fig1 --scale small | --scale must be one of cpu, gpu, paper, smoke, got 'small'
reproduce fig1 --max-hours 0 | --max-hours must be a finite number above 0, got 0.0
reproduce fig1 --name mine | --name must be left out of a reproduction, got 'mine': every comparison has its own
run --max-failures -1 | --max-failures must be an integer of at least 0, got -1
run --max-failures many | --max-failures must be an integer, got 'many'
compare --on-divergence restart | got 'restart'; did you mean 'restart-cycle'?
compare --evaluators 0 | --evaluators must be an integer of at least 1
compare --object-store-memory 1 | --object-store-memory must lie between
compare --address ray://somewhere:10001 | --address must not be a Ray Client one
compare --address 127.0.0.1:1 | --address must be HOST:PORT of a running Ray cluster, got '127.0.0.1:1'
compare --address somewhere | --address must be HOST:PORT of a running Ray cluster, got 'somewhere'
compare --data-root no/such/folder | data-root must be an existing folder
compare --name ../elsewhere | --name must be 1 to 100 letters
compare --store carrier-pigeon://x | --store must be a local path or a URI that pyarrow knows
compare --exploratoin 0.5 | unknown option --exploratoin; did you mean --exploration?
compare stray | compare takes no argument 'stray'
run --sampler sgld --momentum 0.9 | --momentum must be left out for sgld, got 0.9:
run --sampler sgd --temperature 1 | --temperature must be 0 for sgd
run --sampler csglds | did you mean 'csgld'?
run --sampler csgld --schedule linear | --schedule must be cyclical for csgld, got 'linear'
run --sampler emcmc --sampler-settings eta=0 | eta must be a finite number above 0, got 0
run --sampler atmc --sampler-settings integrator=leapfrog | integrator must be 'strang' or 'euler'
run --sampler sam --sampler-settings eta=1 | --sampler-settings must be one of
run --sampler bsam --sampler-settings beta1=1 | beta1 must lie in [0, 1), got 1
run --sampler sgnht --sampler-settings thermostat_rate=-1 | thermostat_rate must lie in [0, 1e+30]
run --batchnorm drop | --batchnorm must be one of keep, reestimate, refuse, shared, got 'drop'
run --burn-in 3 --exploration 0.5 | --burn-in must be left out beside --exploration, got 3
run --task gaussian --task-settings correlation=2 | correlation must
run --callback tensorbord | ray-metrics, tensorboard, wandb, got 'tensorbord'; did you mean 'tensorboard'?
run --log no/folder/events.jsonl | --log must be a local file in a folder that exists, got 'no/folder/
run --tensorboard s3://bucket/x | --tensorboard must be a local folder, got 's3://bucket/x'
sweep --evaluators 2 | --evaluators must be left out of a sweep, got 2: each trial evaluates its own samples
sweep --gpus-per-evaluator .5 | --gpus-per-evaluator must be left out of a sweep, got 0.5
sweep --keep-predictions all | --keep-predictions must be left out of a sweep, got 'all'
sweep --budget 8 | --budget was removed in this version: use --epochs
evaluate some/runs/run --resume | --resume must be left out of an evaluation, got True: what is stored is not made again
evaluate some/runs/run --gpus-per-chain 1 | --gpus-per-chain must be left out of an evaluation, got 1.0: no chain is run
evaluate some/runs/run --name mine | --name must be left out of an evaluation, got 'mine': results lie in the run's
status some/runs/run --port 8001 --web | --web was removed in this version: use --watch or, in the command of
status nowhere | PATH must be STORE/runs/NAME, STORE/sweeps/NAME or STORE, got 'nowhere'
status no/store/runs/one | there are none yet
status no/store/sweeps/one | PATH must be one of the sweeps in
status nowhere --chains 0 | --chains must be an integer of at least 1, got 0
status nowhere --watch often | --watch must be a finite number above 0
status nowhere --watch 5s --json | --watch must be left out beside --json
status | status needs its argument
evaluate nowhere | RUN must be a path of the form STORE/runs/NAME
evaluate no/store/runs/one | there are none yet
evaluate | evaluate needs its argument
report no/store/runs/one | there are none yet
sweep --grid foo=1,2 | --grid: swept option must be one of a, alpha,
sweep --grid lr=.1,.2 --random 3 | --grid must be left out beside --random, got 'lr=.1,.2'
sweep --space exploration=1,1.5 --random 3 | --space must hold points that fit, got none
sweep --grid cycles=2,3000 | --grid: point cycles=3000: cycles must be at most the number of steps (1800), got 3000
sweep --grid cycles | --grid must be NAME=VALUE, each name once, got 'cycles'
sweep --space lr=log:0:1 --random 4 | --space must give lr as log:A:B with two numbers 0 < A < B
sweep --optuna few | --optuna must be an integer, got 'few'
sweep --task mixture25 | --task must have a split val, which a sweep decides on, got mixture25: a density has no
sweep --chains 4 | --chains must be 1, got 4: a point of a sweep is one chain
sweep --name ../elsewhere | --name must be 1 to 100 letters
sweep --address 127.0.0.1:1 | --address must be HOST:PORT of a running Ray cluster, got '127.0.0.1:1'
run --options | --options must be given a JSON file, as in --options best.json, got nothing
run --options no/such.json | --options must be a JSON file, got 'no/such.json': No such file or directory
run --budget 40 | --budget was removed in this version: use raychains fit --budget
fit --budget 10 | --budget must be at least
fit --lr .1 | --lr must be left out of a fit, got 0.1: a fit chooses it
fit --minutes 5 --budget 300 | --budget must be left out beside --minutes, which is turned into one, got 300
fit --folds 2 | --folds must be left out for task digits, got 2: only tasks of Task.from_module can be divided
fit --task mixture25 | --task must be a network's, got 'mixture25': a density has no examples to hold out
run --sample-only zz* | --sample-only must be left out without --init-from, got 'zz*': the other parameters keep
run --epochs 1 --batch-size 500 | --epochs must be at least 17, got 1: by default a chain has 4 cycles, with noise in
evaluate some/runs/run --reference a.npy | --reference must be left out without the measure fidelity, which compares
comprae | did you mean 'compare'?
"""
"""What is typed, and what is said."""


def cases() -> list[tuple[list[str], str]]:
    found = [line.partition(" | ") for line in CASES.strip().splitlines()]
    return [(typed.split(), line) for typed, _, line in found]


@pytest.mark.parametrize(
    ("argv", "line"), cases(), ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_one_line_and_exit_status_2(
    argv: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.init", None)  # nothing is started for a mistake
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert line in err and err.startswith("raychains: ")
    assert err.count("\n") == 1 and "Traceback" not in err
    assert not list(tmp_path.rglob("*"))


def test_a_store_that_is_a_file_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    store.write_text("mine")
    assert main(["run", "--store", str(store)]) == 2
    assert "store must be a folder" in capsys.readouterr().err
    assert store.read_text() == "mine"


def test_help_teaches_without_starting_anything(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "raychains compare --task digits" in capsys.readouterr().out
    for command in ("run", "compare", "sweep", "evaluate", "report"):
        assert main([command, "--help"]) == 0
        out = capsys.readouterr().out
        assert "Example: raychains" in out and "(default: None)" not in out


def test_a_reader_that_leaves_early_is_no_error() -> None:
    """As in `raychains run --help | head -1`."""
    command = [sys.executable, "-m", "raychains.cli", "run", "--help"]
    reader, writer = os.pipe()
    os.close(reader)
    with subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True) as process:
        os.close(writer)
        assert process.stderr is not None
        assert process.stderr.read() == "" and process.wait() == 128 + signal.SIGPIPE


def test_another_pipe_that_breaks_is_not_taken_for_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_a_process_that_died(*_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("raychains.cli._status_of", to_a_process_that_died)
    with pytest.raises(BrokenPipeError):
        main(["run"])


def test_no_command_is_a_mistake_that_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "compare" in capsys.readouterr().out
