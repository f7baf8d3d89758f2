"""The command line, `raychains COMMAND [OPTIONS]`. Each command is one flat dataclass of options."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import inspect
import json
import logging
import math
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TextIO

from raychains import __version__
from raychains.core import bounded, checksum, errors
from raychains.core.errors import ChainsFailed, RaychainsError, UserError, near_miss, printable, reason, unknown_name
from raychains.core.options import Option, make, on_command_line, options_of

COMMANDS = {
    "run": ("Run", "sample one posterior: samples, evaluation, report"),
    "fit": ("Fit", "sample one posterior without tuning: pilots on held-out data choose the method"),
    "compare": ("Compare", "compare parallel with single chains at equal cost (cSG-MCMC's Tables 2 and 4)"),
    "local": ("Local", "sample around trained networks and estimate their local learning coefficient"),
    "plan": ("Plan", "estimate what a comparison costs: gradient evaluations, device hours, money, bytes"),
    "reproduce": ("Reproduce", "run the papers' tables and figures: our numbers beside the published ones"),
    "sweep": ("Sweep", "find good settings by a sweep over β, M and others, judged on validation data"),
    "evaluate": ("Evaluate", "evaluate a run's finished chains on a split"),
    "report": ("Report", "draw a run's report again, or several runs side by side"),
    "status": ("Status", "report the progress of a run or a sweep from its store"),
    "export": ("Export", "write an arm's samples as one file: an ensemble for use without store, data and Ray"),
    "serve": ("Serve", "serve predictions over HTTP with Ray Serve, from an exported file or a run"),
    "prepare": ("Prepare", "prepare ImageNet, or any folder of classes, for streaming"),
    "init-task": ("InitTask", "write a commented task that runs as it is, as a start for your own model and data"),
    "init-density": ("InitDensity", "write a commented log density that runs as it is, as a start for your own"),
}

IMPORT_WITHIN = 10.0
"""Seconds for which an import is not interrupted."""
CLEANUP_WITHIN = 10.0
"""Seconds after Ctrl-C in which another one is ignored: leases are withdrawn and Ray is ended."""
OWN = "Options of this command"
LONG = 140
"""Characters of a sentence of the short help from which on it ends at its colon."""
TAKE_FILES = ("run", "compare", "plan")
"""Commands with --options FILE."""

HELP = f"""raychains {__version__}: Bayesian deep learning by stochastic-gradient MCMC on Ray

usage: raychains COMMAND [OPTIONS]

commands:
{chr(10).join(f"  {name:<14}{text}" for name, (_, text) in COMMANDS.items())}

Start with:  raychains compare --task digits
Then:        raychains run --task digits --sampler sghmc --schedule cyclical --chains 2
Your own:    raychains init-task mytask.py; raychains run --task mytask:make_task
             raychains init-density mydensity.py; raychains run --task mydensity:make_task
Every run is in the store: STORE/runs/NAME/report.html, its samples in STORE/chains/.
Options of a command: raychains COMMAND --help.  Exit status: 0 done, 1 bug, 2 wrong input, 3 some chains failed,
4 Ray was lost, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status. A user's mistake is one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Printable("%(levelname)s %(name)s: %(message)s"))
    with _ended_by_signals():  # around the messages, too, which a further Ctrl-C does not cut off
        return _told_of_errors(arguments)


def _told_of_errors(arguments: Sequence[str]) -> int:
    """Run one command and print its error, if there is one; return the exit status."""
    try:
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
        print(f"raychains: {one_line(error, arguments)}", file=sys.stderr)
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
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM (`ray job stop`, schedulers) and SIGHUP (a terminal that closes) end the body as Ctrl-C does.

    Leases are withdrawn then. Where SIGHUP is ignored, as by nohup, it stays so. None interrupts an import: an
    exception in Python code that C++ calls, as torch's does there, aborts the process. Further ones do not disturb the
    cleanup: Ctrl-C for `CLEANUP_WITHIN`, SIGTERM ever.
    """
    held, held_until, ended = threading.Timer(0, os.kill), math.inf, -math.inf  # a timer that is never started

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal held, held_until, ended
        if time.monotonic() < ended + CLEANUP_WITHIN or (number == signal.SIGTERM and ended > 0):
            return
        held.cancel()
        held_until = min(held_until, time.monotonic() + IMPORT_WITHIN)
        if _imports(frame) and time.monotonic() < held_until:
            held = threading.Timer(0.05, os.kill, (os.getpid(), number))
            held.daemon = True
            held.start()
            return
        ended = time.monotonic()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    terminals = [stream for stream in (sys.stdout, sys.stderr) if stream.isatty()]

    def hung_up(number: int, frame: FrameType | None) -> None:
        for stream in terminals:  # nothing can be written there any more
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        signal.raise_signal(signal.SIGTERM)  # to who handles that now

    taken = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody ignores or handles it
        taken.append(signal.SIGINT)
    before = {number: signal.signal(number, end) for number in taken}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, hung_up)
    try:
        yield
    finally:
        held.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _imports(frame: FrameType | None) -> bool:
    """Return whether the code of this frame runs because a module is imported."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


class _Printable(logging.Formatter):
    """Lines of a log, in which nothing controls a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def one_line(error: BaseException, arguments: Sequence[str] = ()) -> str:
    """Return an error's message as one line that a terminal shows unchanged, with options as they are typed.

    Control characters are written out. ``arguments`` begin with the command, whose options are meant.
    """
    text = str(error)
    if arguments and arguments[0] in COMMANDS:
        text = on_command_line(text, _kind(arguments[0]))
    return printable(text, lines=False)


def entry_point() -> None:
    """Run the console script. Python collects garbage less often than by default, and not once more at the end.

    While torch and Ray are imported, and when the process ends, there is none: that saves a second of a CPU.
    """
    gc.set_threshold(100_000, 20, 20)
    try:
        status = main()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to be stopped, and the status is known
    gc.freeze()
    sys.exit(status)


def _kind(command: str) -> Any:
    """Return a command's dataclass of options."""
    from raychains.core import config

    return getattr(config, COMMANDS[command][0])


def parse(command: str, arguments: Sequence[str]) -> Any:
    """Return the command's options; None when its help was printed.

    Raises:
        UserError: an option that does not exist, or a value of the wrong kind or out of range.
    """
    kind = _kind(command)
    if asked := {"-h", "--help", "--help-all"} & {*arguments}:
        print(_help(command, kind, "--help-all" in asked))
        return None
    options = options_of(kind)
    values = _values(command, options, arguments)
    file = values.pop("options", None)
    return make(kind, values if file is None else {**_values_of_file(options, file), **values})


def _values(command: str, options: Mapping[str, Option], words: Sequence[str]) -> dict[str, Any]:
    """Return the values that the words give, by the names of options, --options FILE included; of one given twice, the
    last."""
    found, rest = _Parser(command, options).read(words)
    if rest:
        raise _unknown(command, rest, options)
    values = {name: value for name, value in vars(found).items() if value not in (None, [])}
    for name, option in options.items():
        value = values.get(name)
        if value is None:
            if option.form.positional and option.default is dataclasses.MISSING:
                raise UserError(f"{command} needs its argument {option.flag}; see raychains {command} --help")
            continue
        if option.form.positional and not option.several and len(value) > 1:
            raise UserError(f"{command} takes no argument {value[1]!r}; see raychains {command} --help")
        if option.types != (bool,):
            values[name] = option.parsed(value if isinstance(value, list) else [value])
    return values


def _unknown(command: str, rest: Sequence[str], options: Mapping[str, Option]) -> UserError:
    """Return the error of words that are neither options nor arguments."""
    for word in rest:
        errors.check_gone(command, word.partition("=")[0])
    name = rest[0].partition("=")[0]
    if not name.startswith("-"):
        return UserError(f"{command} takes no argument {rest[0]!r}; see raychains {command} --help")
    close = near_miss(name.lstrip("-").replace("-", "_"), options).replace("_", "-").replace("'", "")
    hint = close.replace("mean ", "mean --") or ";"
    return UserError(f"unknown option {name}{hint} see raychains {command} --help-all")


class _Parser(argparse.ArgumentParser):
    """A parser of a command's options and arguments, whose errors are a `UserError`."""

    def __init__(self, command: str, options: Mapping[str, Option]) -> None:
        super().__init__(prog=f"raychains {command}", add_help=False, allow_abbrev=False)
        self._single: set[str] = set()
        """Options with one value, as they are written."""
        if command in TAKE_FILES:
            self.add_argument("--options", nargs="?", const="")
        for option in options.values():
            if option.form.positional:
                self.add_argument(option.name, nargs="*")
                continue
            underscored = option.flag.replace("-", "_").replace("__", "--", 1)
            flags = dict.fromkeys([option.flag, underscored, *option.form.aliases])
            if option.types == (bool,):
                self.add_argument(*flags, dest=option.name, action=argparse.BooleanOptionalAction)
            else:
                self.add_argument(*flags, dest=option.name, nargs="+" if option.several else None)
                self._single |= set() if option.several else {*flags}

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return what the words give, and those that are unknown."""
        joined: list[str] = []
        for word in words:
            # argparse takes the number of --lr -1e-3 for an option, but not that of --lr=-1e-3.
            if word.startswith("-") and joined and joined[-1] in self._single and _is_number(word):
                joined[-1] = f"{joined[-1]}={word}"
            else:
                joined.append(word)
        return self.parse_known_intermixed_args(joined)

    def error(self, message: str) -> NoReturn:
        flag, _, what = message.removeprefix("argument ").partition(": ")
        flag = flag.partition("/")[0].partition(",")[0]
        if "ignored explicit" in what:
            raise UserError(f"{flag} takes no value; see {self.prog} --help-all")
        raise UserError(f"{flag} needs a value; see {self.prog} --help-all")


def _is_number(word: str) -> bool:
    with contextlib.suppress(ValueError):
        float(word)
        return True
    return False


def _help(command: str, kind: Any, everything: bool) -> str:
    """Return a command's help: its usual options, each with the first sentence of its text; or everything."""
    from raychains.core.config import USUAL
    from raychains.report.console import terminal_width, wrapped

    width = min(100, terminal_width(80))
    sections = _sections(kind)
    own = sections[OWN]
    usual = {*USUAL, *getattr(kind, "usual", ()), *(option.name for option in own)}
    left_out = 0 if everything else sum(option.name not in usual for option in chain(*sections.values()))
    arguments = [option.flag for option in own if option.form.positional]
    lines = [f"usage: raychains {' '.join([command, *arguments])} [OPTIONS]", ""]
    for paragraph in (inspect.getdoc(kind) or "").split("\n\n"):
        lines += [*wrapped(" ".join(paragraph.split()), width), ""]
    for title, members in sections.items():
        if shown := [option for option in members if everything or option.name in usual]:
            lines += [title, *chain(*(_help_of(option, left_out > 0, width) for option in shown)), ""]
    if left_out:
        lines.append(f"{left_out} more options and the whole texts: raychains {command} --help-all")
    return "\n".join(lines).rstrip()


def _sections(kind: Any) -> dict[str, list[Option]]:
    """Return a command's options by the headings of its help: first its own, then those that commands share."""
    from raychains.core.config import GROUPS

    options = {name: option for name, option in options_of(kind).items() if name not in getattr(kind, "refused", ())}
    shared = {title: [options.pop(n) for n in names.split() if n in options] for title, names in GROUPS.items()}
    return {OWN: [*options.values()], **shared}


def _help_of(option: Option, short: bool, width: int) -> list[str]:
    """Return the lines of one option."""
    from raychains.report.console import wrapped

    head = " ".join(filter(None, [", ".join([option.flag, *option.form.aliases]), option.metavar]))
    head = option.flag if option.form.positional else head
    text = re.split(r"(?<!e\.g)[.;] ", option.help, maxsplit=1)[0].rstrip(".") if short else option.help
    text = text.partition(":")[0] if short and len(text) > LONG else text
    text += f" (default: {option.shown_default})" if option.shown_default else ""
    indent = " " * 30
    body = wrapped(text, width, indent, indent)
    if len(head) > 26:
        return [f"  {head}", *body]
    return [f"  {head:<28}{body[0].lstrip()}", *body[1:]]


def _values_of_file(known: Mapping[str, Option], file: str) -> dict[str, Any]:
    """Return the values in the JSON file of ``--options``, as the command line would give them.

    Raises:
        UserError: no such file, or one that names an option that the command lacks.
    """
    if not file:
        raise UserError("--options must be given a JSON file, as in --options best.json, got nothing")
    try:
        found = json.loads(_read(file))
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"--options must be a JSON file, got {file!r}: {reason(error)}") from None
    if not isinstance(found, dict):
        raise UserError(f"--options must be a JSON file with an object of names and values, got {file!r}")
    found, whole = checksum.unsealed(found)
    if not whole:
        print(f"raychains: {file} was changed since a sweep wrote it; it is used as it is now", file=sys.stderr)
    values = {}
    for name, given in found.items():
        if name not in known:
            raise unknown_name(f"name in {file}", name, known)
        if given is not None:
            value = known[name].checked(given)
            by_sampler = isinstance(value, dict)
            values[name] = ",".join(f"{sampler}={one}" for sampler, one in value.items()) if by_sampler else value
    return values


def _read(file: str) -> bytes:
    """A local file's bytes, or those of one that a URI names."""
    if "://" not in file:
        return bounded.read(Path(file).expanduser())
    from raychains.store import Storage

    plain, question, query = file.partition("?")
    folder, _, name = plain.rpartition("/")
    return Storage(f"{folder}{question}{query}").read(name)


def _do(command: str, options: Any) -> None:
    own = {"prepare": _prepare, "reproduce": _reproduce, "export": _export, "plan": _plan, "serve": _serve}
    if command in own:
        own[command](options)
        return
    if command.startswith("init-"):
        from raychains.api import template

        path = template.write(options.file, command.removeprefix("init-"))
        print(f"wrote {options.file}; run it from its folder: raychains run --task {path}")
        return
    if command == "status":
        from raychains.report.console import standard_output
        from raychains.status.command import show

        show(options, standard_output())
        return
    if command != "report":
        print(f"raychains {command}: planning", flush=True)  # torch takes seconds to load
    import raychains as rc

    if command == "report":
        from raychains.api.commands import compared

        drawn = rc.draw_report(options.run, options.compare, trust=options.trust)
        print(f"report: {drawn.report}")
        if options.compare:
            print(f"side by side: {compared(options.run, options.compare)}")
        return
    from raychains import measures
    from raychains.api import local
    from raychains.inference.run_data import RunData
    from raychains.report.console import say, standard_output
    from raychains.report.terminal import Terminal

    console = standard_output()
    with Terminal(console) as terminal:
        try:
            if command == "evaluate":
                result = rc.evaluate(options.run, options=options, callback=terminal, progress=False)
            else:
                result = getattr(rc, command)(options, callback=terminal, progress=False)
        finally:
            terminal.table()
    if command == "fit":
        from raychains.plotting.tables import terminal as as_text
        from raychains.report.run_tables import choice

        if (table := choice(result.store)) is not None:
            console.print(as_text(table))
        print(f"options: {result.store.location('options.json')}")
    for line in result.suspicions():
        say(console, line)
    for name in _measures_of(options) if command == "evaluate" else local.MEASURES if command == "local" else ():
        for line in measures.named(name).in_words(RunData(result.store, result.comparison)):
            say(console, on_command_line(line, type(options)))
    print(f"report: {result.report}")


def _measures_of(options: Any) -> list[str]:
    """Return the measures of an evaluation, each once."""
    return list(dict.fromkeys([*options.measures, *(["against"] if options.against is not None else [])]))


def _export(options: Any) -> None:
    import raychains as rc
    from raychains.core.data_root import rooted
    from raychains.report.console import Console, progress_bar
    from raychains.report.terminal import export_lines

    settings = {name: getattr(options, name) for name in ("to", "arm", "group", "first", "dtype")}
    with rooted(options.data_root), progress_bar(Console(), "samples") as bar:
        exported = rc.load(options.run, trust=options.trust).export(**settings, progress=bar)
    print(*map(printable, export_lines(exported)), sep="\n")


def _serve(options: Any) -> None:
    from raychains.api.serve import run

    print("raychains serve: starting", flush=True)  # torch and Ray take seconds to load
    run(options, say=lambda line: print(printable(line, lines=False), flush=True))


def _plan(options: Any) -> None:
    from raychains.api.commands import plan, rate
    from raychains.report.console import standard_output
    from raychains.report.terminal import show_costs

    comparison, budget, costs = plan(options)
    show_costs(standard_output(), options, comparison, budget, costs, rate(options))


def _prepare(options: Any) -> None:
    from raychains.api.commands import prepare
    from raychains.report.console import Console, progress_bar

    with progress_bar(Console(), "pictures prepared") as bar:
        manifest, where = prepare(options, progress=lambda _, done, total: bar(done, total))
    counts = ", ".join(f"{split.images:,} pictures of {name}" for name, split in manifest.splits.items())
    left_out = f", {len(manifest.skipped)} damaged ones left out" if manifest.skipped else ""
    print(printable(f"{where}: {counts} in {len(manifest.classes)} classes{left_out}"))


def _reproduce(options: Any) -> None:
    from raychains.papers import contents

    if options.list:
        contents.show(options)
        return
    contents.select(options.names)  # an unknown name is refused before anything heavy is imported
    from raychains.papers import reproduce
    from raychains.papers import reproduce_terminal as published
    from raychains.report.console import standard_output
    from raychains.report.terminal import Terminal

    console = standard_output()
    try:
        reproduce.reproduce(
            options,
            tell=lambda one: published.show(console, one),
            watch=lambda: Terminal(console),
        )
    except ChainsFailed:
        print(f"index: {reproduce.index_of(options)}")
        raise
    if not options.dry_run:
        print(f"index: {reproduce.index_of(options)}")


if __name__ == "__main__":
    entry_point()
