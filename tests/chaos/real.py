"""Real faults: processes of a command get signals at moments that follow from a seed, and what comes of it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyarrow import fs

import raychains
from tests.chaos import commands, prints
from tests.chaos.commands import COMMANDS, Command
from tests.data.prepared.made import folder_of_classes
from tests.processes import PATIENT_RAY, RAYCHAINS, ROOT, free_ports, kill_session, outside

DEADLINE = 300.0
"""Seconds after which a command hangs."""
GONE_WITHIN = 30.0
"""Seconds after a command's end in which its processes end."""
STATUSES = {2, 3, 4, 130}
"""What a disturbed command may end with, besides success: docs/get-started/first-run.md."""
HOW_TO_GO_ON = re.compile(r"resume|same (command|call)|repeat|again")
WORK = {"chain-began", "chain-reported", "view-done", "measuring", "over"}
"""Events by which a command is at work."""
LOOK_EVERY = 0.05
SIGNALS = ("SIGKILL", "SIGSTOP", "SIGTERM")
ENVIRONMENT = {
    **PATIENT_RAY,
    "RAY_gcs_server_port_wait_time_s": "60",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_memory_monitor_refresh_ms": "0",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Neighbours' memory is not the fault that is tried; a GCS that dies as it starts is waited for twice within
`DEADLINE`."""


@dataclass(frozen=True)
class Fault:
    """What follows from a seed.

    Args:
        number: how many came before it.
        share: the moment of the first, as a share of the victim's undisturbed life, or of the files that the command
        writes.
        by_files: which of these.
        which: chooses among several victims.
        pause: seconds until a stopped process goes on, or a server is there again.
        gap: the moment of another: seconds after the one before, or after the command was called again.
    """

    seed: int
    number: int
    command: str
    victim: str
    signal: str
    share: float
    by_files: bool
    which: int
    pause: float
    gap: float

    @property
    def goes_on(self) -> bool:
        """Whether the victim gets SIGCONT: nobody replaces it."""
        replaced = self.victim == "evaluator" or (self.victim == "worker" and COMMANDS[self.command].replaces)
        return self.signal == "SIGSTOP" and not replaced


def drawn(seed: int, faults: int = 1) -> list[Fault]:
    """The faults of a seed, which one command gets one after the other."""
    rng = random.Random(f"real fault {seed}")
    name = rng.choices(list(COMMANDS), [c.weight for c in COMMANDS.values()])[0]
    found = []
    for number in range(faults):
        victim, kind = rng.choice(COMMANDS[name].victims), rng.choice(SIGNALS)
        by_files = rng.random() < 0.4 and not COMMANDS[name].s3
        pause, share, which = rng.uniform(1, 3), rng.uniform(0, 0.95), rng.randrange(100)
        found.append(Fault(seed, number, name, victim, kind, share, by_files, which, pause, rng.uniform(0, 10)))
    return found


@dataclass
class Tale:
    """What happened, with seconds since the beginning."""

    say: Callable[[str], Any] | None = None
    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.lines.append(f"{time.monotonic() - self.began:7.2f}  {text}")
        if self.say is not None:
            self.say(self.lines[-1])


def members(session: int, title: re.Pattern[bytes] | None = None, parent: int | None = None) -> list[int]:
    """Living processes of a session whose command lines begin so, and whose parent is this one."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry)) == session and parent in (None, parent_of(int(entry))):
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
                if line and (title is None or title.match(line)):  # a zombie has none
                    found.append(int(entry))
    return sorted(found)


def parent_of(pid: int) -> int:
    """A process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def spoken(command: Command, folder: Path, places: dict[str, str], again: int = 0) -> list[str]:
    """A command's words, with its places in them."""
    words = (*command.words.split(), *(command.again if again else ()))
    return [word.format(folder=folder, **places) for word in words]


class Going:
    """A command that goes on in a session of its own; what is left of it is killed at the end."""

    def __init__(self, command: Command, folder: Path, places: dict[str, str], again: int = 0) -> None:
        self.command, self.folder = command, folder
        self.out, self.err = (folder / f"{'again-' * again}{name}" for name in ("out", "err"))
        environment = outside() | ENVIRONMENT | {"RAY_TMPDIR": places["ray"], "HOME": places["home"]}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.began, self.wall = time.monotonic(), time.time()
        words = [*RAYCHAINS, *spoken(command, folder, places, again)]
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                words, cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )

    def victims(self, kind: str) -> list[int]:
        """Processes of a kind."""
        if kind == "driver":
            return [self.process.pid] if self.process.poll() is None else []
        # What a raylet starts has its command line for an instant.
        parent = self.process.pid if kind in ("raylet", "GCS") else None
        return members(self.process.pid, self.command.titled(kind), parent)

    def end(self, deadline: float) -> int | None:
        """Its exit status; None: it hangs."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def close(self, patience: float) -> list[str]:
        """Wait for its processes, kill the rest and return their titles."""
        deadline = time.monotonic() + patience
        while (left := members(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(0.1)
        titles = []
        for pid in left:
            with contextlib.suppress(OSError):
                titles.append(
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80].strip()
                )
        kill_session(self.process.pid)
        self.process.kill()
        self.process.wait()
        until = time.monotonic() + 10
        while members(self.process.pid) and time.monotonic() < until:
            time.sleep(0.05)
        return [t for t in titles if t]


class Server:
    """An S3 server whose front process may be killed: its data lie in a moto server behind it."""

    def __init__(self) -> None:
        self.port, self.behind = free_ports(2)
        self._front: subprocess.Popen[bytes] | None = None
        self._moto = self._started("moto.server", "-H", "127.0.0.1", "-p", str(self.behind))
        self.start()

    def _started(self, *words: str) -> subprocess.Popen[bytes]:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        return subprocess.Popen([sys.executable, "-m", *words], env=outside() | ENVIRONMENT, cwd=ROOT, **quiet)

    def start(self) -> None:
        """Start the front process; it takes the port once it is up."""
        self._front = self._started("tests.storage.proxy", str(self.behind), str(self.port))

    @property
    def pid(self) -> int:
        """The front process."""
        assert self._front is not None
        return self._front.pid

    def reap(self) -> None:
        """Wait for a front process that was killed."""
        assert self._front is not None
        self._front.wait(10)

    def bucket(self, name: str) -> str:
        """The URI of a store in a new bucket."""
        client = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.behind}", scheme="http", region="us-east-1", allow_bucket_creation=True,
            access_key="testing", secret_key="testing",
        )  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            try:
                client.create_dir(name)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        return f"s3://{name}/store?scheme=http&endpoint_override=127.0.0.1:{self.port}&region=us-east-1"

    def close(self) -> None:
        """End both processes."""
        for process in (self._front, self._moto):
            if process is not None:
                process.kill()
                process.wait()


def code_digest() -> str:
    """sha256 of the package and of the commands: templates of others are of no use."""
    files = [*sorted(Path(raychains.__file__).parent.rglob("*.py")), Path(commands.__file__), Path(prints.__file__)]
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()[:16]


class Workshop:
    """A scratch folder with an undisturbed template of every command, and an S3 server once one is needed."""

    def __init__(self, scratch: Path | None = None, keep: bool = False) -> None:
        self.scratch = (scratch or Path(tempfile.gettempdir()) / f"raychains-chaos-{os.getuid()}") / code_digest()
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.keep = keep
        self._server: Server | None = None
        self._number = 0

    def __enter__(self) -> Workshop:
        os.environ.update({k: v for k, v in ENVIRONMENT.items() if k.startswith("AWS_")})
        return self

    def __exit__(self, *error: object) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def server(self) -> Server:
        """The S3 server."""
        if self._server is None:
            self._server = Server()
        return self._server

    def pictures(self) -> Path:
        """The set that is prepared."""
        folder = self.scratch / "pictures"
        if not folder.exists():
            making = Path(tempfile.mkdtemp(dir=self.scratch))
            folder_of_classes(making / "pictures", train=200, val=40)
            (making / "pictures").rename(folder)
        return folder

    @contextlib.contextmanager
    def places(self, command: Command, folder: Path) -> Iterator[dict[str, str]]:
        """Words of a command: its store, a short folder for Ray, …"""
        self._number += 1
        bucket = f"b{os.getpid()}-{self._number}"
        with tempfile.TemporaryDirectory(prefix="rc", dir="/tmp", ignore_cleanup_errors=True) as ray:
            (Path(ray) / "home").mkdir()
            yield {
                "store": self.server.bucket(bucket) if command.s3 else str(folder / "store"), "ray": ray,
                "home": f"{ray}/home", "pictures": str(self.pictures()) if "{pictures}" in command.words else "",
            }  # fmt: skip

    def template(self, name: str) -> dict[str, Any]:
        """What the undisturbed command does: seconds, lives of its processes, files, prints, which S3 has as a disk has
        them."""
        name = name.removesuffix(" on S3")
        made_before = self.scratch / name.replace(" ", "-")
        if not made_before.exists():
            folder = Path(tempfile.mkdtemp(prefix="template-", dir=self.scratch))
            command = self._begin(name, folder)
            with self.places(command, folder) as places:
                going = Going(command, folder, places)
                first: dict[str, float] = {}
                last: dict[str, float] = {}
                files: set[str] = set(written(folder))
                before = len(files)
                try:
                    while going.process.poll() is None and time.monotonic() < going.began + DEADLINE:
                        now = time.monotonic() - going.began
                        for kind in command.victims:
                            if kind != "S3 server" and going.victims(kind):
                                first.setdefault(kind, now)
                                last[kind] = now
                        files.update(written(folder))
                        time.sleep(LOOK_EVERY)
                    status, seconds = going.process.poll(), time.monotonic() - going.began
                finally:
                    left = going.close(GONE_WITHIN)
                if status != 0 or left:
                    raise RuntimeError(f"{name}, undisturbed: {status}, {left}: {going.err.read_text()[-2000:]}")
                made = {
                    "seconds": seconds, "lived": {k: last[k] - first[k] for k in first}, "files": len(files) - before,
                    "prints": printed(places, folder),
                }  # fmt: skip
            (folder / "template.json").write_text(json.dumps(made))
            try:
                folder.rename(made_before)
            except OSError:  # another process was faster
                shutil.rmtree(folder)
        return dict(json.loads((made_before / "template.json").read_text()))

    def _begin(self, name: str, folder: Path) -> Command:
        command = COMMANDS[name]
        if command.after is not None:
            self.template(command.after)
            shutil.copytree(self.scratch / command.after / "store", folder / "store")
        folder.mkdir(parents=True, exist_ok=True)
        return command

    def disturb(self, faults: Sequence[Fault], say: Callable[[str], Any] | None = None) -> list[dict[str, Any]]:
        """Do them; return what is written in the ledger: a record of each that came about, or of the first, missed."""
        if self.scratch.name != code_digest():
            raise SystemExit("the code changed while faults were tried, and the templates are of no use: call again")
        name, seed = faults[0].command, faults[0].seed
        template = self.template(name)
        folder = Path(tempfile.mkdtemp(prefix=f"fault-{seed}-", dir=self.scratch))
        command, tale = self._begin(name, folder), Tale(say)
        tale.tell(f"{name}: " + ", then ".join(f"{f.signal} to {f.victim}" for f in faults))
        with self.places(command, folder) as places:
            records = Disturbed(faults, command, folder, places, template, tale, self).records()
        if "violations" in records[-1]:
            (folder / "tale.txt").write_text("\n".join(tale.lines) + "\n")
            records[-1]["tale"] = tale.lines[1:]
        elif not self.keep:
            shutil.rmtree(folder, ignore_errors=True)
        return records


def written(folder: Path) -> Iterator[str]:
    """Files that are there now."""
    for place in (folder / "store", folder / "prepared"):
        for root, _, names in os.walk(place):
            yield from (f"{root}/{name}" for name in names)
    yield from (str(f) for f in folder.glob("exported*"))


def printed(places: dict[str, str], folder: Path) -> dict[str, str]:
    """Fingerprints of everything that a command left."""
    return prints.of_store(places["store"]) | prints.of_folder(folder)


@dataclass
class Struck:
    """A fault that came about.

    Args:
        call: the call of the command that it hit.
        at: when, by the time of day.
        again: when the command was called again, if it did not go on.
    """

    fault: Fault
    call: Going
    at: float
    outcome: str = "went on"
    again: float | None = None

    @property
    def lost(self) -> bool:
        """Whether something was lost, so that there is a recovery."""
        return not self.fault.goes_on and self.fault.victim != "S3 server" and self.outcome != "hung"


class Disturbed:
    """A command's faults from its beginning to its end."""

    def __init__(
        self, faults: Sequence[Fault], command: Command, folder: Path, places: dict[str, str], template: dict[str, Any],
        tale: Tale, shop: Workshop,
    ) -> None:  # fmt: skip
        self.coming, self.first, self.command = list(faults), faults[0], command
        self.folder, self.places, self.template, self.tale, self.shop = folder, places, template, tale, shop
        self.violations: list[str] = []
        self.struck: list[Struck] = []

    def records(self) -> list[dict[str, Any]]:
        began, calls = time.time(), [Going(self.command, self.folder, self.places)]
        try:
            while self._calls_again(calls[-1]):
                calls.append(Going(self.command, self.folder, self.places, again=len(calls)))
            ended = time.time()
            if self.struck and self.struck[-1].outcome != "hung":
                self._compare()
        finally:
            for call in reversed(calls):
                self._close(call)
        for line in self.violations:
            self.tale.tell(f"VIOLATED: {line}")
        ends = [*(s.at for s in self.struck[1:]), ended]
        records = [
            self._record(s, end, since) for s, end, since in zip(self.struck, ends, [began, *ends], strict=False)
        ]
        records = records or [self._kept(self.first) | {"outcome": "missed", "seconds": round(ended - began, 1)}]
        if self.violations:
            records[-1]["violations"] = self.violations
        return records

    def _calls_again(self, call: Going) -> bool:
        """Disturb a call until it ends; return whether another one is due."""
        while self.coming and self._strike(call, self.coming[0]):
            self.struck.append(Struck(self.coming.pop(0), call, time.time()))
            self._undo(self.struck[-1].fault)
        status = call.end(call.began + DEADLINE)
        self.tale.tell(f"the command ended with {status}")
        hits = [s for s in self.struck if s.call is call]
        if status == 0:
            return False
        if status is None or not hits:
            if hits:
                hits[-1].outcome = "hung"
            how = (
                f"it did not end within {DEADLINE:.0f} s" if status is None else f"undisturbed, it ended with {status}"
            )
            self.violations.append(f"{how}: {call.err.read_text()[-3000:]}")
            return False
        self._check_end(status, hits)
        if self.first.command == "export" and not self._differences():
            hits[-1].outcome = "was done"
            return False
        hits[-1].again = time.time()
        hits[-1].outcome = hits[-1].outcome.replace("went on", "resumed")
        return True

    def _kept(self, fault: Fault) -> dict[str, Any]:
        wanted = ("seed", "number", "command", "victim", "signal")
        return {name: value for name, value in dataclasses.asdict(fault).items() if name in wanted}

    def _record(self, struck: Struck, end: float, since: float) -> dict[str, Any]:
        kept = self._kept(struck.fault) | {"outcome": struck.outcome, "seconds": round(end - since, 1)}
        if not struck.lost:
            return kept
        begun = struck.again or struck.at
        recovery = next((at for at, event in self._log() if event in WORK and at > begun), end) - begun
        # Another fault that came first leaves it unknown.
        return kept | (
            {} if begun + recovery >= end and struck is not self.struck[-1] else {"recovery": round(recovery, 1)}
        )

    def _close(self, call: Going) -> None:
        """End what is left of a call: nothing, soon after the call's end, but what a killed driver left."""
        hits = [s.fault for s in self.struck if s.call is call]
        ended = bool(self.struck) and call.process.poll() is not None
        killed = any((f.victim, f.signal) == ("driver", "SIGKILL") for f in hits)
        left = call.close(GONE_WITHIN if ended and not killed else 0.0)
        if left and ended and not killed:
            self.tale.tell(f"{GONE_WITHIN:.0f} s later there is still {left}")
            self.violations.append(f"processes are left: {left}")

    def _strike(self, call: Going, fault: Fault) -> bool:
        """Wait for the moment and send the signal; False where the command ended before."""
        seen, appeared = set(written(self.folder)), None
        last = self.struck[-1] if self.struck else None
        most = len(seen) + max(1, round(fault.share * self.template["files"]))
        life = self.template["lived"].get(fault.victim, self.template["seconds"])
        while call.process.poll() is None and time.monotonic() < call.began + DEADLINE:
            found = [self.shop.server.pid] if fault.victim == "S3 server" else call.victims(fault.victim)
            now = time.monotonic()
            appeared = appeared or (now if found else None)
            if last is not None:
                due = time.time() - (last.again or last.at) >= fault.gap
            elif fault.by_files:
                seen.update(written(self.folder))
                due = len(seen) >= most
            else:
                due = appeared is not None and now - appeared >= fault.share * life
            if found and due:
                self.pid = found[fault.which % len(found)]
                with contextlib.suppress(OSError):
                    os.kill(self.pid, getattr(signal, fault.signal))
                    self.tale.tell(f"{fault.signal} to {fault.victim} {self.pid}")
                    return True
            time.sleep(LOOK_EVERY)
        self.tale.tell(f"the moment of {fault.signal} to {fault.victim} did not come")
        return False

    def _undo(self, fault: Fault) -> None:
        """Let a stopped process go on after a while, start a killed server anew."""
        if fault.signal == "SIGSTOP":
            if fault.goes_on:
                time.sleep(fault.pause)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGCONT)
                self.tale.tell("SIGCONT")
        elif fault.victim == "S3 server":
            self.shop.server.reap()
            time.sleep(fault.pause)
            self.shop.server.start()
            self.tale.tell("the server is started anew")

    def _check_end(self, status: int, hits: list[Struck]) -> None:
        """A command that did not finish says so in one line, and how to go on."""
        call, text = hits[-1].call, hits[-1].call.err.read_text()
        faults = {(s.fault.victim, s.fault.signal) for s in hits}
        if status == -signal.SIGKILL and ("driver", "SIGKILL") in faults:
            return
        last = [line for line in text.splitlines() if line.startswith("raychains: ")]
        if status == -signal.SIGTERM and ("driver", "SIGTERM") in faults and (not text or last):
            return  # before Python could ask for the signal, or after the last word
        meets = {victim for victim, _ in faults} & {"raylet", "GCS"} and not self._ready(call)
        meets = meets or "You have likely discovered a bug in Ray" in text
        if meets and status in (1, -signal.SIGABRT) and not last and "Traceback" not in text:
            self.tale.tell("Ray's C++ ended it")
            hits[-1].outcome = "ended by Ray"
            return
        self.tale.tell(f"it said: {last[-1] if last else text[-300:]}")
        if status not in STATUSES:
            self.violations.append(f"exit status {status}: {text[-1500:]}")
        if "Traceback" in text:
            self.violations.append(f"a traceback: {text[-3000:]}")
        if not last or not (HOW_TO_GO_ON.search(last[-1]) or last[-1] == "raychains: interrupted"):
            self.violations.append(f"it does not say how to go on: {last[-1:] or text[-1000:]}")

    def _log(self) -> Iterator[tuple[float, str]]:
        """Times of day and events, of all calls."""
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / "log.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    told = json.loads(line)
                    yield datetime.datetime.fromisoformat(told["time"]).timestamp(), told["event"]

    def _ready(self, call: Going) -> bool:
        """Whether a call was connected to Ray; a command without a log never says so."""
        return any(event == "ready" and at > call.wall for at, event in self._log())

    def _differences(self) -> list[str]:
        return prints.differences(printed(self.places, self.folder), self.template["prints"])

    def _compare(self) -> None:
        different = self._differences()
        self.tale.tell(f"{len(self.template['prints'])} fingerprints, {len(different)} differ")
        if different:
            more = f" and {len(different) - 5} more" if len(different) > 5 else ""
            self.violations.append("; ".join(different[:5]) + more)
