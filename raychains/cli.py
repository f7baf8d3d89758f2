"""The command line, `raychains COMMAND [OPTIONS]`. Each command is one flat dataclass of options."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import gc
import io
import json
import logging
import os
import re
import select
import signal
import sys
import threading
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from raychains import __version__
from raychains.core.errors import ChainsFailed, RaychainsError, UserError, unknown_name

COMMANDS = {
    "run": ("Run", "sample one posterior: samples, evaluation, report"),
    "compare": ("Compare", "parallel against single chains at equal cost (cSG-MCMC's Tables 2 and 4)"),
    "plan": ("Plan", "what a comparison will cost: gradient evaluations, device hours, money, bytes"),
    "reproduce": ("Reproduce", "the papers' tables and figures: our numbers beside the published ones"),
    "sweep": ("Sweep", "find good settings by a sweep over β, M and any other, judged on validation data"),
    "evaluate": ("Evaluate", "evaluate a run's finished chains on a split"),
    "report": ("Report", "draw a run's report again, or several runs side by side"),
    "status": ("Status", "how far a run or a sweep is, from what lies in its store"),
    "export": ("Export", "write an arm's samples as one file: an ensemble for use without store, data and Ray"),
    "prepare": ("Prepare", "prepare ImageNet, or any folder of classes, for streaming"),
    "init-task": ("InitTask", "write a commented task that runs as it is, as a start for your own model and data"),
}

TAKE_FILES = ("run", "compare", "plan")
"""Commands with --options FILE."""

HELP = f"""raychains {__version__}: Bayesian deep learning by stochastic-gradient MCMC on Ray

usage: raychains COMMAND [OPTIONS]

commands:
{chr(10).join(f"  {name:<10}{text}" for name, (_, text) in COMMANDS.items())}

Start with:  raychains compare --task digits
Then:        raychains run --task digits --sampler sghmc --schedule cyclical --chains 2
Your own:    raychains init-task mytask.py; raychains run --task mytask:make_task
Every run is in the store: STORE/runs/NAME/report.html, its samples in STORE/chains/.
Options of a command: raychains COMMAND --help.  Exit status: 0 done, 1 bug, 2 wrong input, 3 some chains failed,
130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. A user's mistake is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    try:
        with _ended_by_sigterm():
            status = _status_of(arguments)
            sys.stdout.flush()  # here, where a reader that left early (`| head`) is no error of ours
            return status
    except BrokenPipeError:
        if not (closed := [stream for stream in (sys.stdout, sys.stderr) if _without_reader(stream)]):
            raise
        for stream in closed:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python writes its buffers at its end
        return 128 + signal.SIGPIPE
    except RaychainsError as error:
        print(f"raychains: {one_line(error)}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        print("raychains: interrupted", file=sys.stderr)
        return 130


def _without_reader(stream: TextIO) -> bool:
    """Return whether the reader of this pipe has closed it."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
    except (OSError, ValueError):  # not a file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _status_of(arguments: Sequence[str]) -> int:
    """Run one command, which prints its own output; return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        print(__version__)
        return 0
    if arguments[0] not in COMMANDS:
        raise unknown_name("command", arguments[0], COMMANDS)
    config = parse(arguments[0], arguments[1:])
    if config is not None:
        _do(arguments[0], config)
    return 0


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM (`ray job stop`, schedulers) end the body as Ctrl-C does, so that leases are withdrawn.

    A repeated one does not disturb the cleanup.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def one_line(error: BaseException) -> str:
    """Return an error's message as one line that a terminal shows unchanged: control characters are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(error))


def entry_point() -> None:
    """Run the console script. Python collects garbage less often than by default, and not once more at the end.

    While torch and Ray are imported, and when the process ends, there is none: that saves a second of a CPU.
    """
    gc.set_threshold(100_000, 20, 20)
    status = main()
    gc.freeze()
    sys.exit(status)


def parse(command: str, arguments: Sequence[str]) -> Any:
    """Return the command's options; None when its help was printed.

    Raises:
        UserError: an option that does not exist, or a value of the wrong kind.
    """
    import tyro

    from raychains.core import config as commands

    kind: Any = getattr(commands, COMMANDS[command][0])
    if any(a in ("-h", "--help") for a in arguments):
        with contextlib.suppress(SystemExit):
            tyro.cli(kind, args=["--help"], prog=f"raychains {command}")
        return None
    words = _renamed(_with_options_file(kind, arguments) if command in TAKE_FILES else arguments)
    output = io.StringIO()
    try:
        with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output):
            return tyro.cli(kind, args=words, prog=f"raychains {command}")
    except SystemExit:
        raise _one_line(command, kind, output.getvalue()) from None


def _renamed(words: Sequence[str]) -> list[str]:
    """The words with deprecated options under their new names; standard error says so."""
    found = [re.sub(r"^--listen(?==|$)", "--callback", word) for word in words]
    if found != list(words):
        print("raychains: --listen is now --callback; the old name works for one more release", file=sys.stderr)
    return found


def _with_options_file(kind: Any, arguments: Sequence[str]) -> list[str]:
    """``arguments`` without ``--options FILE``, after those that the file names: of one option, the last value counts.

    Args:
        kind: the command's dataclass.
        arguments: the user's.

    Raises:
        UserError: no such file, or one that names an option that the command lacks.
    """
    own = list(arguments)
    at = next((i for i, word in enumerate(own) if word.partition("=")[0] == "--options"), None)
    if at is None:
        return own
    _, equals, file = own.pop(at).partition("=")
    if not equals:
        if at == len(own):
            raise UserError("options must be given a JSON file, as in --options best.json, got nothing")
        file = own.pop(at)
    try:
        found = json.loads(_read(file))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"options must be a JSON file, got {file!r}: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise UserError(f"options must be a JSON file with an object of names and values, got {file!r}")
    fields = [f.name for f in dataclasses.fields(kind)]
    words: list[str] = []
    for name, value in found.items():
        if name not in (*fields, "listen"):
            raise unknown_name(f"name in {file}", name, fields)
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        elif value is not None and value != []:
            values = value if isinstance(value, list) else [value]
            words += [f"--{option}", *(v if isinstance(v, str) else json.dumps(v) for v in values)]
    return [*words, *own]


def _read(file: str) -> bytes:
    """A local file's bytes, or those of one that a URI names."""
    if "://" not in file:
        return Path(file).expanduser().read_bytes()
    from raychains.store import Storage

    plain, question, query = file.partition("?")
    folder, _, name = plain.rpartition("/")
    return Storage(f"{folder}{question}{query}").read(name)


def _one_line(command: str, kind: Any, text: str) -> UserError:
    """tyro's box as one line that names the option, the value and what is allowed."""
    words = " ".join(line.strip("│╭╮╰╯─ ") for line in text.splitlines() if line.strip("│╭╮╰╯─ "))
    fields = {f.name.replace("_", "-"): f for f in dataclasses.fields(kind)}
    if found := re.search(r"Unrecognized options: (\S+?)(?:,|\s|$)", words):
        name = found[1].lstrip("-").partition("=")[0]
        if found[1].startswith("-") and name not in fields:
            close = difflib.get_close_matches(name, fields, n=1, cutoff=0.5)
            hint = f"; did you mean --{close[0]}?" if close else ";"
            return UserError(f"unknown option --{name}{hint} see raychains {command} --help")
        return UserError(f"{command} takes no argument {found[1]!r}; see raychains {command} --help")
    if found := re.search(r"Error parsing (?:--)?([\w-]+)\b.*?(?:\[|base 10: |to float: )(.*?)(?:\]| -{9})", words):
        name = found[1].lower()
        allowed = _kind_of(kind, fields[name].name) if name in fields else "another value"
        return UserError(f"{name.replace('-', '_')} must be {allowed}, got {found[2]}")
    if "equired" in words or "Missing" in words:
        return UserError(f"{command} needs its argument; see raychains {command} --help")
    return UserError(f"{words.partition('For full helptext')[0].strip()}; see raychains {command} --help")


def _kind_of(kind: Any, name: str) -> str:
    hint = typing.get_type_hints(kind)[name]
    names = {int: "an integer", float: "a number", str: "a text", bool: "a flag without value"}
    inner = [a for a in (hint, *typing.get_args(hint)) if a in names]
    return names[inner[0]] if inner else str(hint)


def _do(command: str, options: Any) -> None:
    own = {"prepare": _prepare, "reproduce": _reproduce, "export": _export, "plan": _plan}
    if command in own:
        own[command](options)
        return
    if command == "init-task":
        from raychains.api import template

        print(f"wrote {options.file}; run it from its folder: raychains run --task {template.write(options.file)}")
        return
    if command == "status":
        from raychains.report.console import standard_output
        from raychains.status.command import show

        show(options, standard_output())
        return
    import raychains as rc

    if command == "report":
        from raychains.api.commands import compared

        print(f"report: {rc.draw_report(options.run, options.compare, trust=options.trust).report}")
        if options.compare:
            print(f"side by side: {compared(options.run, options.compare)}")
        return
    from raychains.report.terminal import Terminal

    with Terminal() as terminal:
        try:
            if command == "evaluate":
                chosen = {name: getattr(options, name) for name in ("views", "weights", "measures")}
                result = rc.evaluate(options.run, options.split, **chosen, options=options, callback=terminal)
            else:
                result = getattr(rc, command)(options, callback=terminal)
        finally:
            terminal.table()
    print(f"report: {result.report}")


def _export(options: Any) -> None:
    from rich.console import Console

    import raychains as rc
    from raychains.data.root import rooted
    from raychains.report.console import progress_bar
    from raychains.report.terminal import export_lines

    settings = {name: getattr(options, name) for name in ("to", "arm", "group", "first", "dtype")}
    with rooted(options.data_root), progress_bar(Console(), "samples") as bar:
        exported = rc.load(options.run, trust=options.trust).export(**settings, progress=bar)
    print(*export_lines(exported), sep="\n")


def _plan(options: Any) -> None:
    from rich.console import Console

    from raychains.api.commands import plan, rate
    from raychains.report.terminal import show_costs

    show_costs(Console(), options, *plan(options), rate(options))


def _prepare(options: Any) -> None:
    from rich.console import Console

    from raychains.api.commands import prepare
    from raychains.report.console import progress_bar

    with progress_bar(Console(), "pictures prepared") as bar:
        manifest, where = prepare(options, progress=lambda _, done, total: bar(done, total))
    counts = ", ".join(f"{split.images:,} pictures of {name}" for name, split in manifest.splits.items())
    left_out = f", {len(manifest.skipped)} damaged ones left out" if manifest.skipped else ""
    print(f"{where}: {counts} in {len(manifest.classes)} classes{left_out}")


def _reproduce(options: Any) -> None:
    from raychains.papers import reproduce
    from raychains.papers import terminal as published
    from raychains.report.console import standard_output
    from raychains.report.terminal import Terminal

    console = standard_output()
    if options.list or options.dry_run:
        for planned in reproduce.plans(options):
            published.show_plan(console, planned)
        return
    try:
        reproduce.reproduce(
            options,
            tell=lambda one: published.show(console, one),
            watch=lambda: Terminal(console),
        )
    except ChainsFailed:
        print(f"index: {reproduce.index_of(options)}")
        raise
    print(f"index: {reproduce.index_of(options)}")


if __name__ == "__main__":
    entry_point()
