"""One real fault: a command's process gets a signal at a moment that follows from a seed, and what comes of it."""

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
from collections.abc import Callable, Iterator
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
LOOK_EVERY = 0.01
SIGNALS = ("SIGKILL", "SIGSTOP", "SIGTERM")
ENVIRONMENT = {
    **PATIENT_RAY, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_memory_monitor_refresh_ms": "0", "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip
"""Neighbours' memory is not the fault that is tried."""


@dataclass(frozen=True)
class Fault:
    """What follows from a seed.

    Args:
        share: the moment, as a share of the victim's undisturbed life, or of the files that the command writes.
        by_files: which of these.
        which: chooses among several victims.
        pause: seconds until a stopped process goes on, or a server is there again.
    """

    seed: int
    command: str
    victim: str
    signal: str
    share: float
    by_files: bool
    which: int
    pause: float

    @property
    def goes_on(self) -> bool:
        """Whether the victim gets SIGCONT: nobody replaces it."""
        replaced = self.victim == "evaluator" or (self.victim == "worker" and COMMANDS[self.command].replaces)
        return self.signal == "SIGSTOP" and not replaced


def drawn(seed: int) -> Fault:
    """The fault of a seed."""
    rng = random.Random(f"real fault {seed}")
    name = rng.choices(list(COMMANDS), [c.weight for c in COMMANDS.values()])[0]
    victim, number = rng.choice(COMMANDS[name].victims), rng.choice(SIGNALS)
    by_files = rng.random() < 0.4 and not COMMANDS[name].s3
    pause = rng.uniform(1, 3)
    return Fault(seed, name, victim, number, rng.uniform(0, 0.95), by_files, rng.randrange(100), pause)


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


def members(session: int, title: re.Pattern[bytes] | None = None) -> list[int]:
    """Living processes of a session whose command lines begin so."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(entry)) == session:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
                if line and (title is None or title.match(line)):  # a zombie has none
                    found.append(int(entry))
    return sorted(found)


class Going:
    """A command that goes on in a session of its own; what is left of it is killed at the end."""

    def __init__(self, command: Command, folder: Path, places: dict[str, str], again: bool = False) -> None:
        self.command, self.folder = command, folder
        words = [w.format(folder=folder, **places) for w in command.words + (command.again if again else ())]
        self.out, self.err = (folder / f"{'again-' * again}{name}" for name in ("out", "err"))
        environment = outside() | ENVIRONMENT | {"RAY_TMPDIR": places["ray"], "HOME": places["home"]}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.began = time.monotonic()
        with self.out.open("w") as out, self.err.open("w") as err:
            self.process = subprocess.Popen(
                [*RAYCHAINS, *words], cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
            )

    def victims(self, kind: str) -> list[int]:
        """Processes of a kind."""
        if kind == "driver":
            return [self.process.pid] if self.process.poll() is None else []
        return members(self.process.pid, self.command.titled(kind))

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
        """What the undisturbed command does: seconds, lives of its processes, files, prints."""
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

    def disturb(self, fault: Fault, say: Callable[[str], Any] | None = None) -> dict[str, Any]:
        """Do it; return what is written in the ledger."""
        if self.scratch.name != code_digest():
            raise SystemExit("the code changed while faults were tried, and the templates are of no use: call again")
        template = self.template(fault.command)
        folder = Path(tempfile.mkdtemp(prefix=f"fault-{fault.seed}-", dir=self.scratch))
        command = self._begin(fault.command, folder)
        tale = Tale(say)
        tale.tell(f"{fault}")
        with self.places(command, folder) as places:
            record = Disturbed(fault, command, folder, places, template, tale, self).record()
        if record.get("violations"):
            (folder / "tale.txt").write_text("\n".join(tale.lines) + "\n")
            record["tale"] = tale.lines[1:]
        if not self.keep and not record.get("violations"):
            shutil.rmtree(folder, ignore_errors=True)
        return record


def written(folder: Path) -> Iterator[str]:
    """Files that are there now."""
    for place in (folder / "store", folder / "prepared"):
        for root, _, names in os.walk(place):
            yield from (f"{root}/{name}" for name in names)
    yield from (str(f) for f in folder.glob("exported*"))


def printed(places: dict[str, str], folder: Path) -> dict[str, str]:
    """Fingerprints of everything that a command left."""
    return prints.of_store(places["store"]) | prints.of_folder(folder)


class Disturbed:
    """One fault from its beginning to its end."""

    def __init__(
        self, fault: Fault, command: Command, folder: Path, places: dict[str, str], template: dict[str, Any], tale: Tale,
        shop: Workshop,
    ) -> None:  # fmt: skip
        self.fault, self.command, self.folder, self.places = fault, command, folder, places
        self.template, self.tale, self.shop = template, tale, shop
        self.violations: list[str] = []
        self.by_ray = False

    def record(self) -> dict[str, Any]:
        fault, began = self.fault, time.monotonic()
        going, left, recovery, outcome = Going(self.command, self.folder, self.places), [], None, "missed"
        try:
            hit = self._strike(going)
            if hit:
                wall, at = time.time(), time.monotonic()
                self._undo(going)
                status = going.end(going.began + DEADLINE)
                self.tale.tell(f"the command ended with {status}")
                if status == 0:
                    outcome = "went on"
                    if not fault.goes_on and fault.victim != "S3 server":
                        recovery = self._at_work(wall) or time.monotonic() - at
                elif status is None:
                    outcome = "hung"
                    self.violations.append(f"it did not end within {DEADLINE:.0f} s")
                else:
                    self._check_end(status, going)
                    outcome, recovery = self._resume()
                if outcome != "hung":
                    self._compare()
        finally:
            left = going.close(GONE_WITHIN if outcome not in ("hung", "missed") else 0.0)
        if left and outcome not in ("hung", "missed"):
            self.tale.tell(f"{GONE_WITHIN:.0f} s later there is still {left}")
            if (fault.victim, fault.signal) != ("driver", "SIGKILL"):
                self.violations.append(f"processes are left: {left}")
        for line in self.violations:
            self.tale.tell(f"VIOLATED: {line}")
        kept = {k: v for k, v in dataclasses.asdict(fault).items() if k in ("seed", "command", "victim", "signal")}
        kept |= {"outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
        if recovery is not None:
            kept["recovery"] = round(recovery, 1)
        return kept | ({"violations": self.violations} if self.violations else {})

    def _strike(self, going: Going) -> bool:
        """Wait for the moment and send the signal; False where the command ended before."""
        fault, seen, appeared = self.fault, set(written(self.folder)), None
        most = len(seen) + max(1, round(fault.share * self.template["files"]))
        life = self.template["lived"].get(fault.victim, self.template["seconds"])
        while going.process.poll() is None and time.monotonic() < going.began + DEADLINE:
            found = [self.shop.server.pid] if fault.victim == "S3 server" else going.victims(fault.victim)
            now = time.monotonic()
            appeared = appeared or (now if found else None)
            seen.update(written(self.folder) if fault.by_files else ())
            due = len(seen) >= most if fault.by_files else appeared is not None and now - appeared >= fault.share * life
            if found and due:
                pid = found[fault.which % len(found)]
                with contextlib.suppress(OSError):
                    os.kill(pid, getattr(signal, fault.signal))
                    self.tale.tell(f"{fault.signal} to {fault.victim} {pid}")
                    self.pid = pid
                    return True
            time.sleep(LOOK_EVERY)
        self.tale.tell(f"the moment did not come: the command ended with {going.process.poll()}")
        if going.process.poll() != 0:
            self.violations.append(
                f"undisturbed, it ended with {going.process.poll()}: {going.err.read_text()[-1500:]}"
            )
        return False

    def _undo(self, going: Going) -> None:
        """Let a stopped process go on after a while, start a killed server anew."""
        if self.fault.signal == "SIGSTOP":
            if self.fault.goes_on:
                time.sleep(self.fault.pause)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGCONT)
                self.tale.tell("SIGCONT")
        elif self.fault.victim == "S3 server":
            self.shop.server.reap()
            time.sleep(self.fault.pause)
            self.shop.server.start()
            self.tale.tell("the server is started anew")

    def _check_end(self, status: int, going: Going) -> None:
        """A command that did not finish says so in one line, and how to go on."""
        text, driver = going.err.read_text(), self.fault.victim == "driver"
        if driver and self.fault.signal == "SIGKILL":
            if status != -signal.SIGKILL:
                self.violations.append(f"killed, it ended with {status}")
            return
        if driver and self.fault.signal == "SIGTERM" and status == -signal.SIGTERM and not text:
            return  # before Python could ask for the signal
        last = [line for line in text.splitlines() if line.startswith("raychains: ")]
        if self.fault.victim in ("raylet", "GCS") and status in (1, -signal.SIGABRT) and not last and not self._ready():
            self.by_ray = (
                "Traceback" not in text
            )  # its C++ ends a process whose raylet dies in the second in which they meet
            self.tale.tell("Ray ended the process while it connected")
            if self.by_ray:
                return
        self.tale.tell(f"it said: {last[-1] if last else text[-300:]}")
        if status not in STATUSES:
            self.violations.append(f"exit status {status}: {text[-1500:]}")
        if "Traceback" in text:
            self.violations.append(f"a traceback: {text[-3000:]}")
        if not last or not (HOW_TO_GO_ON.search(last[-1]) or last[-1] == "raychains: interrupted"):
            self.violations.append(f"it does not say how to go on: {last[-1:] or text[-1000:]}")

    def _resume(self) -> tuple[str, float]:
        """Call the command again; seconds until it is at work or done."""
        if not self._differences() and self.fault.command == "export":
            return "was done", 0.0
        wall, again = time.time(), Going(self.command, self.folder, self.places, again=True)
        try:
            status = again.end(again.began + DEADLINE)
            seconds = time.monotonic() - again.began
            self.tale.tell(f"called again, it ended with {status}")
            if status != 0:
                self.violations.append(f"called again, it ended with {status}: {again.err.read_text()[-3000:]}")
            return "ended by Ray" if self.by_ray else "resumed", self._at_work(wall) or seconds
        finally:
            left = again.close(GONE_WITHIN)
            if left:
                self.violations.append(f"processes of the second call are left: {left}")

    def _at_work(self, since: float) -> float | None:
        """Seconds from a time of day to the log's next event of work."""
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / "log.jsonl").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    told = json.loads(line)
                    seconds = datetime.datetime.fromisoformat(told["time"]).timestamp() - since
                    if seconds > 0 and told["event"] in WORK:
                        return seconds
        return None

    def _ready(self) -> bool:
        """Whether the first call was connected to Ray; a command without a log never says so."""
        log = self.folder / "log.jsonl"
        return log.exists() and '"event": "ready"' in log.read_text()

    def _differences(self) -> list[str]:
        return prints.differences(printed(self.places, self.folder), self.template["prints"])

    def _compare(self) -> None:
        different = self._differences()
        self.tale.tell(f"{len(self.template['prints'])} fingerprints, {len(different)} differ")
        if different:
            more = f" and {len(different) - 5} more" if len(different) > 5 else ""
            self.violations.append("; ".join(different[:5]) + more)
