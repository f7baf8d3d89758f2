"""Malformed arguments of the Python API: one line that says what is allowed, before anything is written; or they
work."""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raychains as rc
from raychains.core.errors import RaychainsError
from tests.fuzz import calls as api
from tests.fuzz import made
from tests.fuzz.odd import ODD
from tests.fuzz.rules import Started, examples, no_ray, no_rendering
from tests.fuzz.test_command_line import loose
from tests.report import runs
from tests.tasks import made_images

WRITES = ("result.export", "rc.draw_report")
"""Calls that write without Ray when all arguments are good."""


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, api.Call]]:
    """The calls, in an empty folder, in which relative stores would be made; Ray cannot start."""
    whole = tmp_path_factory.mktemp("whole") / "store"
    runs.store_run(whole, made.comparison())
    result = rc.load(str(whole / "runs" / "small"))
    result.export(str(whole / "whole.safetensors"))
    here = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.delenv("RAY_ADDRESS", raising=False)
        no_ray(patch)
        made_images.use(patch)
        no_rendering(patch)
        yield api.calls(whole, result)


odd = st.sampled_from(sorted(ODD)).map(lambda name: (name, ODD[name])) | loose.map(lambda v: (repr(v), lambda: v))
"""A value's name and what makes it."""
numbers = st.lists(st.tuples(st.integers(0, 1000), odd), min_size=1, max_size=3)


def check(calls: dict[str, api.Call], name: str, changes: list[tuple[str, tuple[str, Any]]]) -> None:
    call, here = calls[name], Path.cwd()
    given = {**call.good(), **{argument: make() for argument, (_, make) in changes}}
    line, out = None, io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.after(call.function(**given))
    except Started:  # accepted
        pass
    except RaychainsError as error:
        assert isinstance(error, rc.UserError), repr(error)
        line = str(error)
        assert line and "\n" not in line and line.isprintable(), line
    written = [path for path in here.rglob("*") if path.is_file()]
    for path in here.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert not written or line is None, (line, written)


def arguments(calls: dict[str, api.Call], name: str, chosen: list[tuple[int, Any]]) -> list[tuple[str, Any]]:
    names = calls[name].names
    return [(names[number % len(names)], value) for number, value in chosen]


@examples(220, "Python")
@given(number=st.integers(0, 1000), chosen=numbers)
def test_any_argument_of_any_call(calls: dict[str, api.Call], number: int, chosen: list[tuple[int, Any]]) -> None:
    name = sorted(calls)[number % len(calls)]
    check(calls, name, arguments(calls, name, chosen))


def test_good_arguments_work(calls: dict[str, api.Call]) -> None:
    """What the property above is compared with; `rc.tune.report` alone needs the results of an experiment."""
    for name, call in calls.items():
        if name == "rc.tune.report" or call.function is rc.make_task:
            continue
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Started):
            call.after(call.function(**call.good()))


CASES: list[tuple[str, str, str, str]] = [
    ("rc.SGLD", "lr", "raising('repr', 'str')", "lr must be a finite number of at least 0, got Foreign(…)"),
    ("rc.SGLD", "lr", "np.full((2, 3), nan)", "lr must be a finite number of at least 0, got array([[nan, nan"),
    ("rc.SGLD", "lr", "deep()", "lr must be a finite number of at least 0, got list(…)"),
    ("rc.SGLD", "params", "itertools.count()", "params must be tensors, (name, tensor) pairs or groups"),
    ("rc.SGLD", "params", "[]", "at least one, got none"),
    ("rc.SGLD", "params", "yielding()", "got a int among them"),
    ("rc.SGLD", "seed", "'x'", "seed must be an integer in"),
    ("rc.SGLD", "weight_decay", "1e308", "weight_decay must be at most 1e+08"),
    ("rc.EntropyMCMC", "anchor_decay", "1e308", "anchor_decay must be at most 1e+08"),
    ("rc.BSAM", "s0", "1e308", "s0 must be at most 1e+30"),
    ("rc.EntropySGD", "inner_noise", "1e308", "inner_noise must be at most 1e+30"),
    ("rc.SGHMC", "temperature", "1e308", "temperature must be at most 1e+30"),
    ("rc.SGNHT", "thermostat", "np.full((2, 3), nan)", "thermostat must be 'coordinate' or 'scalar', got array"),
    ("rc.Step", "lr", "10**400", "lr must be a finite number above 0"),
    ("rc.Cyclical", "noise_in_exploration", "np.full((2, 3), nan)", "noise_in_exploration must be true or false"),
    ("rc.Cyclical", "drop_first", "10**400", "drop_first must be an integer in [0, 100]"),
    ("rc.Run", "callback", "itertools.repeat('x')", "callback must be a text or several"),
    ("rc.Run", "init_from", "torch.ones(2, 3)", ""),
    ("rc.Run", "store", "raising('fspath')", "store must be a text, got <tests.fuzz.odd.Foreign object"),
    ("rc.Run", "epochs", "10**5000", "epochs must be at most"),
    ("rc.run", "callback", "np.full((2, 3), nan)", "callback must be an object with a method on(event)"),
    ("rc.run", "sampler", "[]", "sampler must be a name"),
    ("rc.run", "sampler", "rc.Sampler", "sampler must name a subclass of raychains.Sampler"),
    ("rc.run", "temperature_ramp", "1.5", "temperature_ramp must lie in [0, 1), got 1.5"),
    ("rc.Task.from_log_density(init)", "init", "torch.eye(2).to_sparse()", "must hold dense tensors, got a sparse one"),
    (
        "rc.Task.from_log_density(init)",
        "init",
        "torch.ones(2, device='meta')",
        "must hold tensors with values",
    ),
    ("rc.Metric", "digits", "True", "digits must be an integer in [0, 20], got True"),
    ("rc.Metric", "better", "None", "better must be 'lower', 'higher' or 'neither', got None"),
    ("result.export", "progress", "' '", "progress must be a function of (samples written, samples), got ' '"),
    ("result.export", "to", "'a\\0b'", "to must be a path"),
    ("rc.evaluate", "views", "None", "views must be a text or several, got None"),
    ("rc.evaluate", "measures", "[[1], [2, 3]]", "measures must be names of measures"),
    ("rc.evaluate", "options", "True", "options must be"),
    ("rc.evaluate", "split", "bytearray(b'x')", "split must be a text"),
    ("rc.draw_report", "compare", "None", "compare must be a text or several"),
    ("rc.make_task", "name", "None", "name must be a task's name"),
    ("rc.load", "trust", "np.full((2, 3), nan)", "trust must be true or false"),
    ("rc.load", "task", "'x'", "task must be a raychains.Task, got a str"),
    ("rc.Chain", "device", "'\\x1b[31mred\\nx'", "device must be one of this machine"),
    ("rc.Chain", "spec", "None", "spec must be a raychains.ChainSpec"),
    ("rc.ScheduleLR", "optimizer", "None", "optimizer must be a torch.optim.Optimizer"),
    ("result.predict", "x", "np.array(['a', 'b'])", "x must be an array or a tensor of numbers"),
    ("result.predict", "x", "np.ones((2, 3))", "x must be inputs that the network takes, [n, …], got float64 [2, 3]"),
    ("result.predict", "x", "torch.eye(2).to_sparse()", "x must hold dense tensors"),
    ("posterior(x)", "x", "None", "x must be a dense tensor [n, …]"),
    ("rc.PosteriorPredictive", "model", "None", "model must be a torch.nn.Module"),
    ("rc.PosteriorPredictive", "samples", "None", "samples must be dicts of tensors by name"),
    ("rc.PosteriorPredictive", "weights", "torch.ones(2, device='meta')", "weights must hold tensors with values"),
    ("rc.PosteriorPredictive.load", "file", "'a\\0b'", "file must be a path"),
    ("rc.Task.from_module", "defaults", "'x'", "defaults must be a dict of options by name"),
    ("rc.Task.from_module", "version", "10**5000", "version must be a text or an integer"),
    ("rc.Task.from_module", "loss", "np.array([])", "loss must be 'cross_entropy', 'gaussian', 'heteroscedastic'"),
    ("rc.Task.from_log_density", "dim", "10**12", "dim must be at most 10,000,000"),
    ("rc.Task.from_log_density", "names", "range(10**12)", "names must be 2 different texts"),
    ("rc.run", "sample_only", "'\\x1b[31mred\\nx'", "must be left out without `init_from`, got '\\x1b[31mred\\nx'"),
    ("rc.reproduce", "progress", "torch.ones(2, 3)", "progress must be true or false"),
]


@pytest.mark.parametrize(("name", "argument", "value", "line"), CASES, ids=[" ".join(case[:3]) for case in CASES])
def test_a_wrong_argument_is_its_line(
    calls: dict[str, api.Call], name: str, argument: str, value: str, line: str
) -> None:
    if not line:
        return check(calls, name, [(argument, (value, ODD[value]))])
    call = calls[name]
    with pytest.raises(rc.UserError) as caught:
        call.after(call.function(**{**call.good(), argument: ODD[value]()}))
    assert line in str(caught.value) and "\n" not in str(caught.value), caught.value
    return None
