"""Options: one declaration gives the command line, Python's keywords, their checks, their help and their types."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raychains as rc
from raychains import tasks
from raychains.callbacks import NAMES as CALLBACKS
from raychains.cli import COMMANDS, main
from raychains.core import config, registry
from raychains.core.errors import UserError, near_miss
from raychains.core.options import Option, make, on_command_line, options_of
from raychains.planning.presets.named import PRESETS
from raychains.samplers import METHODS
from raychains.schedules import KINDS

ROOT = Path(__file__).parents[2]
CALLS = {"run": config.Run, "compare": config.Compare, "sweep": config.Sweep}
CONTRADICTIONS: list[tuple[str, dict[str, Any]]] = [
    ("run", {"burn_in": 3, "exploration": 0.5}),
    ("run", {"steps": 100}),
    ("run", {"task": "mixture25", "epochs": 10}),
    ("run", {"sampler": "sgld", "momentum": 0.9}),
    ("run", {"sampler": "sgd", "temperature": 1.0}),
    ("run", {"sampler": "csgld", "schedule": "linear"}),
    ("run", {"accelerator_type": "T4", "gpus_per_chain": 0}),
    ("compare", {"preset": "emcmc-eta", "sampler": ("sgld",)}),
    ("compare", {"lanes": 2}),
    ("sweep", {"chains": 4}),
    ("sweep", {"random": 4, "optuna": 4}),
]
"""Options that exclude one another, or the task; the message begins with one of them."""


def wrong(kind: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """Yield (keyword, value, what is wrong) made from a command's options: types, choices, ranges, names."""
    for option in options_of(kind).values():
        if option.form.positional or option.form.objects:
            continue
        yield option.name[:-1] + "zq", 1, "name"
        if str not in option.types:
            yield option.name, object(), "type"
        if option.choices:
            yield option.name, "qqq", "choice"
        if option.form.check is not None or option.form.convert is not None:
            yield option.name, -1 if int in option.types else -1.0 if float in option.types else "\0", "range"


def words(option: Option, value: Any) -> list[str]:
    """Return a value as it is typed."""
    return [option.flag, *map(str, value)] if isinstance(value, tuple) else [option.flag, str(value)]


@pytest.mark.parametrize("command", CALLS)
def test_a_wrong_keyword_is_one_line_that_names_it(command: str) -> None:
    cases = list(wrong(CALLS[command]))
    assert len(cases) > 90 and {what for *_, what in cases} == {"name", "type", "choice", "range"}
    for name, value, _ in cases:
        with pytest.raises(UserError) as error:
            getattr(rc, command)(**{name: value})
        said = str(error.value)
        assert "\n" not in said and (
            said.startswith(f"{name} must ") or said.startswith(f"unknown argument {name!r}")
        ), said


@pytest.mark.parametrize(("command", "given"), CONTRADICTIONS)
def test_contradictions_are_one_line_in_either_language(
    command: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.init", None)
    with pytest.raises(UserError) as error:
        getattr(rc, command)(**given, progress=False)
    assert "\n" not in str(error.value) and str(error.value).startswith(tuple(f"{name} must " for name in given))
    options = options_of(CALLS[command])
    assert main([command, *(word for name, value in given.items() for word in words(options[name], value))]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(tuple(f"raychains: {options[name].flag} must " for name in given)), line


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = sys.modules["ray"] = None  # importing either raises
from raychains.cli import main
for argv in json.loads(sys.stdin.read()):
    print(">", *argv, file=sys.stderr)
    assert main(argv) == 2, argv
"""


def test_wrong_options_are_refused_before_anything_heavy_is_loaded() -> None:
    cases: list[tuple[list[str], str]] = []
    for command, kind in CALLS.items():
        options = options_of(kind)
        for name, value, what in wrong(kind):
            flag = f"--{name.replace('_', '-')}"
            if what == "name":
                cases.append(([command, flag, "1"], f"unknown option {flag}"))
            elif what == "type" and options[name].types != (bool,):
                if not options[name].several:
                    cases.append(([command, flag, "qqq"], f"{flag} must be "))
            elif what == "type":
                cases.append(([command, f"{flag}=qqq"], f"{flag} takes no value"))
            else:
                cases.append(([command, flag, f"{value}"], f"{flag} must "))
    for command, option, value in (
        ("run", "--sampler", "csgmhc"),
        ("compare", "--schedule", "cyclic"),
        ("run", "--task", "digist"),
    ):
        cases.append(([command, option, value], f"{option} must be one of "))
    assert len(cases) > 100
    typed = json.dumps([argv for argv, _ in cases])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], input=typed, capture_output=True, text=True, cwd=ROOT, timeout=900
    )
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == 2 * len(cases)
    for (argv, line), found in zip(cases, said[1::2], strict=True):
        assert found.startswith(f"raychains: {line}"), (argv, found)


def test_values_are_held_in_one_form() -> None:
    made = make(
        config.Compare,
        {
            "epochs": np.int64(4),
            "lr": np.float64(0.5),
            "temperature": torch.tensor(0.25),
            "sampler": "sgld",
            "schedule": ["cyclical"],
            "store": Path("runs/x"),
            "sampler_settings": {"eta": 4e-4, "update": "gibbs", "list": [1, 2]},
        },
    )
    assert (made.epochs, made.lr, made.temperature, made.store) == (4, 0.5, 0.25, "runs/x")
    assert make(config.Run, {"init_from": Path("w.pt")}).init_from == "w.pt"
    assert make(config.Local, {"init_from": [Path("a.pt"), "b.pt"]}).init_from == ("a.pt", "b.pt")
    assert type(made.epochs) is int and type(made.lr) is float
    assert made.sampler == ("sgld",) and made.schedule == ("cyclical",)
    assert made.sampler_settings == ("eta=0.0004", "update=gibbs", "list=[1, 2]")
    swept = make(config.Sweep, {"grid": {"exploration": np.array([0, 0.5]), "cycles": [2, 4]}, "space": {}})
    assert swept.grid == ("exploration=0.0,0.5", "cycles=2,4")


def test_near_misses_are_suggested() -> None:
    for wrong_name, right in (
        ("epoch", "epochs"),
        ("beta", "exploration"),
        ("learning_rate", "lr"),
        ("sample", "sampler"),
    ):
        with pytest.raises(UserError, match=f"unknown argument '{wrong_name}'; did you mean '{right}'"):
            make(config.Run, {wrong_name: 1})
    for written, meant in {"M": "cycles", "SGLD": "sgld", "explore": "exploration", "decay": "weight_decay"}.items():
        assert (
            near_miss(written, ["sgld", "log", "cycles", "exploration", "weight_decay"]) == f"; did you mean {meant!r}?"
        )
    for name in ("hmc", "loss", "x", "", "swap_rate"):
        assert near_miss(name, ["sghmc", "log", "lr", "swag", "rate_decay"]) == ""
    with pytest.raises(UserError, match="source must be given"):
        make(config.Prepare, {"set": "x"})


def test_what_only_python_takes_is_named_as_well() -> None:
    for call, line in (
        (lambda: rc.sweep(worker_pool=3), "unknown argument 'worker_pool'"),
        (lambda: rc.run(rc.Run(epochs=3), epoch=4), "unknown argument 'epoch'; did you mean 'epochs'"),
        (lambda: rc.run({"epochs": 3}), "options must be a raychains.Run, got a dict: give settings by keyword"),
        (lambda: rc.run(progress="no"), "progress must be true or false, got 'no'"),
        (lambda: rc.run(callback=3), "callback must be an object with a method on\\(event\\)"),
        (lambda: rc.run(sampler=3), "sampler must be a name, an import path 'module:Class' or a class, got 3"),
        (lambda: rc.compare(lr={"sgld": "high"}), "lr must give each sampler one number, got 'sgld': 'high'"),
    ):
        with pytest.raises(UserError, match=line):
            call()


def test_short_names_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, line in (
        (["--beta", "1"], "--exploration must lie in [0, 1), got 1.0"),
        (["-M", "0"], "--cycles must be an integer of at least 1, got 0"),
        (["-T", "-1"], "--temperature must be a finite number of at least 0, got -1.0"),
        (["--samples_per_cycle", "0"], "--samples-per-cycle must be an integer of at least 1, got 0"),
    ):
        assert main(["run", *argv]) == 2
        assert line in capsys.readouterr().err


def test_the_names_that_are_known_before_torch_are_those_of_the_registries() -> None:
    modules = [importlib.import_module(f"{tasks.__name__}.{m.name}") for m in pkgutil.iter_modules(tasks.__path__)]
    kinds = [k for m in modules for k in vars(m).values() if isinstance(k, type) and issubclass(k, rc.Task)]
    stated = {vars(k)["name"]: f"{k.__module__}:{k.__qualname__}" for k in kinds if "name" in vars(k)}
    assert stated == tasks.NAMES
    names = {"task": stated, "sampler": METHODS, "schedule": KINDS, "preset": PRESETS, "callback": CALLBACKS}
    assert set(names) == set(registry.NAMES_WRITTEN)
    for option, known in names.items():
        assert sorted(registry.known_names(option)) == sorted(known)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_option_and_the_short_one_fits_a_screen(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    kind = getattr(config, COMMANDS[command][0])
    refused = getattr(kind, "refused", ())
    options = {name: option for name, option in options_of(kind).items() if name not in refused}
    assert main([command, "--help-all"]) == 0
    everything = capsys.readouterr().out
    assert not any(f"\n  {options_of(kind)[name].flag} " in everything for name in refused)
    assert all(
        f"\n  {option.flag}" in everything and option.help.split()[0] in everything for option in options.values()
    )
    assert main([command, "--help"]) == 0
    usual = capsys.readouterr().out
    assert len(usual.splitlines()) <= 80 and max(map(len, usual.splitlines())) <= 80
    left_out = [option for option in options.values() if f"\n  {option.flag}" not in usual]
    assert ("--help-all" in usual) == bool(left_out)
    groups = " ".join(config.GROUPS.values()).split()
    assert len(groups) == len(set(groups)) and set(config.USUAL) <= set(groups)
    assert set(groups) >= {field.name for field in dataclasses.fields(config.Compare)}


@pytest.mark.parametrize("command", CALLS)
def test_python_shows_every_option_with_its_text_and_type(command: str) -> None:
    function = getattr(rc, command)
    parameters, text = inspect.signature(function).parameters, " ".join(pydoc.render_doc(function).split())
    for name, option in options_of(CALLS[command]).items():
        assert name in parameters and parameters[name].default == (None if name == "callback" else option.default)
        if name not in ("task", "callback"):
            assert f"{name}: {option.help}" in text
    assert parameters["epochs"].annotation == int | None
    assert list(parameters)[:3] == ["options", "task", "preset" if command == "compare" else "sampler"]


CALLED = """
import raychains as rc

rc.run(task="digits", epochs=3, sample_only="fc.*", sampler_settings={"eta": 1}, progress=False)
rc.compare(rc.Compare(), sampler="sgld", callback="jsonl")
rc.sweep(grid={"lr": [0.1, 1]})
rc.run(epochs="3")
rc.compare(epoch=3)
rc.sweep(asha="half")
"""


CHECKED = """
[mypy]
follow_imports = skip
[mypy-raychains.*]
follow_imports = silent
"""
"""Settings of mypy: it reads no other library, of which torch alone takes it twenty seconds."""


def test_type_checkers_know_the_options(tmp_path: Path) -> None:
    file, settings = tmp_path / "called.py", tmp_path / "mypy.ini"
    file.write_text(CALLED)
    settings.write_text(CHECKED)
    check = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(settings),
        "--cache-dir",
        ".mypy_cache/called",
        str(file),
    ]
    done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT, timeout=900)
    found = [line.partition(": error: ")[2] for line in done.stdout.splitlines() if ": error: " in line]
    assert len(found) == 3, done.stdout + done.stderr
    assert 'Argument "epochs"' in found[0] and 'did you mean "epochs"' in found[1] and '"asha"' in found[2]


def test_messages_name_options_as_they_are_typed() -> None:
    for text, typed in (
        ("exploration must lie in [0, 1)", "--exploration must lie in [0, 1)"),
        ("samples_per_cycle must be 1", "--samples-per-cycle must be 1"),
        ("task digits has no such setting", "task digits has no such setting"),
        (
            "name taken: continue it with `resume=True` or another `name`",
            "name taken: continue it with --resume or another --name",
        ),
        ("give `val_split=.1`", "give --val-split .1"),
        ("see `report` and `lr`", "see `report` and --lr"),
    ):
        assert on_command_line(text, config.Run) == typed
    assert on_command_line("run must have results", config.Report) == "RUN must have results"


def test_the_package_shows_its_api_and_nothing_else() -> None:
    assert dir(rc) == sorted(rc.__all__) and {"run", "compare", "sweep", "evaluate", "reproduce", "tune"} <= set(
        dir(rc)
    )
