"""Malformed command lines: whatever is typed comes to one line with exit status 2, or is a command that could start."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raychains import samplers, tasks
from raychains.cli import COMMANDS
from raychains.core import config
from raychains.samplers import METHODS
from raychains.schedules import KINDS
from tests.fuzz.rules import examples, no_ray, say
from tests.tasks import made_images

SAMPLING = ["run", "compare"]
FLAGS = {
    command: sorted(f"--{f.name.replace('_', '-')}" for f in dataclasses.fields(getattr(config, kind)))
    for command, (kind, _) in COMMANDS.items()
}
HUGE = ["9" * 30, "-" + "9" * 30, "9" * 400, "9" * 5000, "1e308", "1e309", "1e-320", "-1e400"]
PRINTED = """
nan inf -inf NaN None null true [] {} - -- = =1 0 -1 0x10 1_0 1e3 ½ ² ١٢ １ 1,5 ~ ~nobody-here/x .. ../x / /dev/null
/dev/null/x x://y :// file: file:// file:///dev/null %00 $(id) `id` ' " <b> * │ ╭─╮ b'x' {1} 1j ... (1,) '\\q' 0777
f'x' [1] \\ ray://x 127.0.0.1:² 127.0.0.1:99999999 : :1 [::1]:1 @file
"""
ODD = [
    *PRINTED.split(), *HUGE, "", " ", "\x00", "a\x00b", "\x1b[31mred\x1b[0m", "\n", "a\nb", "\r", "\t", "\u202etxt",
    "\u2028", "\ud800", "é" * 70 + ":1", "1" + "*1" * 50, "[" * 4000, "{" * 4000, '{"a":' * 3000, "\x00:1", "\ud800:1",
    "a" * 5000,
]  # fmt: skip
GOOD = [
    *tasks.NAMES, *METHODS, *KINDS, "keep", "reestimate", "refuse", "local", "1", "2", "3", "10", "50", "0.5", "1e-3",
    "1000000000", "1000000000000", "1000000000000000000",
]  # fmt: skip
SETTED = [*samplers.KINDS.values(), *KINDS.values(), *map(tasks.kind_of, tasks.NAMES)]
SETTINGS = ["", "nesterov", *sorted({name for kind in SETTED for name in inspect.signature(kind).parameters})]

text = st.text(max_size=12) | st.text(alphabet=st.characters(exclude_categories=()), max_size=6)
numbers = st.one_of(
    st.integers(-3, 60).map(str), st.integers().map(str), st.floats(width=32).map(repr), st.floats(0, 1).map(repr)
)
loose = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 50) | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
settings_ = st.builds(
    lambda name, equals, value: f"{name}{equals}{value}",
    st.sampled_from(SETTINGS) | text,
    st.sampled_from(["=", "=", "=", "=", "==", "", ":"]),
    loose.map(lambda v: json.dumps(v, ensure_ascii=False)) | st.sampled_from(ODD + GOOD) | numbers,
)
value = st.sampled_from(ODD) | st.sampled_from(GOOD) | numbers | text | settings_
unknown = st.text(max_size=10).map(lambda t: f"--{t}") | st.text(max_size=3).map(lambda t: f"-{t}")


def option(command: str) -> st.SearchStrategy[list[str]]:
    """An option with as many values as a hand might give it."""
    flags = st.sampled_from(FLAGS[command])
    settings = [f for f in FLAGS[command] if f.endswith("-settings")]
    pairs = [
        st.tuples(flags, value).map(list),
        st.tuples(flags, value).map(list),
        st.tuples(flags, value).map(lambda p: [f"{p[0]}={p[1]}"]),
        st.tuples(flags, st.lists(value, max_size=3)).map(lambda p: [p[0], *p[1]]),
        st.lists(value, max_size=1),
        unknown.map(lambda u: [u]),
    ]
    if settings:
        some = st.lists(settings_, min_size=1, max_size=3)
        pairs += [st.tuples(st.sampled_from(settings), some).map(lambda p: [p[0], *p[1]])] * 2
        pairs += [st.sampled_from(sorted(tasks.NAMES)).map(lambda t: ["--task", t])]
        pairs += [st.sampled_from(sorted(METHODS)).map(lambda m: ["--sampler", m])] * 2
    return st.one_of(pairs)


def line(commands: list[str]) -> st.SearchStrategy[list[str]]:
    """A command with some options."""

    def of(command: str) -> st.SearchStrategy[list[str]]:
        parts = st.lists(option(command), max_size=4)
        return parts.map(lambda found: [command, *(token for part in found for token in part)])

    return st.sampled_from(commands).flatmap(of)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty working folder, in which relative stores would be made; Ray cannot start."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("COLUMNS", "80")
        no_ray(patch)
        made_images.use(patch)  # neither data sets nor downloads
        yield folder


def check(argv: list[str], here: Path) -> None:
    said = say(argv)
    written = [path.relative_to(here) for path in here.rglob("*") if path.is_file()]
    for path in here.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if said.status is None:  # a valid command: its plan is written, and the logs that it names, nothing else
        named = {word.partition("=")[2] or word for word in argv}
        assert all(path.name == "plan.json" or path.parts[0] in named for path in written), (argv, written)
    else:
        made = said.status == 0 and argv[0].startswith("init-")  # whose whole purpose is the file
        assert made or not written, (argv, said, written)


@examples(140, "command line")
@given(argv=line(SAMPLING))
@example(argv=["run", "--steps", "1" + "0" * 18, "--task", "mixture25"])
@example(argv=["run", "--epochs", "1" + "0" * 12, "--sampler", "sgld"])
@example(argv=["run", "--epochs", "9" * 400])
@example(argv=["run", "--chains", "1" + "0" * 12])
@example(argv=["compare", "--repeats", "1" + "0" * 12])
@example(argv=["run", "--task", "gaussian", "--task-settings", "dim=1000000"])
@example(argv=["run", "--task", "linear-regression", "--task-settings", "num_data=1000000000000"])
@example(argv=["run", "--task-settings", "hidden=[1000000,1000000]"])
@example(argv=["run", "--sampler-settings", "num_data=" + "9" * 400])
@example(argv=["run", "--seed", "9" * 400])
@example(argv=["run", "--lr", "1e308"])
@example(argv=["run", "--data-root", "~nobody-here"])
@example(argv=["run", "--store", "~nobody-here/x"])
@example(argv=["run", "--store", "a\x00b"])
@example(argv=["run", "--store", ""])
@example(argv=["run", "--store", "\ud800"])
@example(argv=["run", "--sampler-settings", "eta=" + "[" * 100_000])
@example(argv=["run", "--sampler", "emcmc", "--sampler-settings", "eta=b'x'"])
@example(argv=["run", "--sampler", "bsam", "--sampler-settings", "m_sharpness={1,2}"])
@example(argv=["run", "--task", "gaussian", "--task-settings", "mean={1:2}"])
@example(argv=["run", "--task", "gaussian", "--task-settings", "covariance=[[{1}]]"])
@example(argv=["run", "--task", "gaussian", "--task-settings", "mean=b'ab'"])
@example(argv=["run", "--schedule", "step", "--sampler", "sgld", "--schedule-settings", "milestones=(.5,'x')"])
@example(argv=["run", "--schedule", "linear", "--sampler", "sgld", "--lr", "1e300", "--final-lr", "1e-300"])
@example(argv=["run", "--sampler", "sgld", "--lr", "1e300", "--final-lr", "1e-300"])
@example(argv=["run", "--address", "é" * 70 + ":1"])
@example(argv=["run", "--exploration=" + "9" * 5000])
@example(argv=["compare", "--lr", "1", "--lr", "2"])
@example(argv=["run", "--log", "a\x00b"])
@example(argv=["run", "--log", "a" * 5000])
@example(argv=["run", "--tensorboard", "\ud800"])
def test_any_line_of_options(here: Path, argv: list[str]) -> None:
    check(argv, here)


@examples(60, "command line")
@given(argv=line(["evaluate", "report", "status", "serve"]))
@example(argv=["serve", "\x00"])
@example(argv=["serve", "a" * 5000])
@example(argv=["serve", "/dev/zero"])
@example(argv=["serve", "x/runs/y", "--batch-wait", "9" * 400])
@example(argv=["report", "\x00/runs/x"])
@example(argv=["report", "\ud800/runs/x"])
@example(argv=["report", "~nobody-here/runs/x"])
@example(argv=["report", "/dev/null/runs/x"])
@example(argv=["report", "x/runs/\n"])
@example(argv=["report", "x/runs/.."])
@example(argv=["status", "a" * 5000])
@example(argv=["status", "\x00/runs/x"])
@example(argv=["status", "/dev/null"])
@example(argv=["evaluate", "x/runs/y", "--split", "\x00"])
def test_any_line_that_names_a_run(here: Path, argv: list[str]) -> None:
    check(argv, here)


@examples(50, "command line")
@given(argv=st.lists(value | unknown | st.sampled_from([*COMMANDS, "--version", "--help", "-h"]), max_size=4))
def test_any_words(here: Path, argv: list[str]) -> None:
    check(argv, here)
