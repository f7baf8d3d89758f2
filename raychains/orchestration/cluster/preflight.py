"""Checks of this machine before Ray starts on it: one line now, not a traceback or stall later.

Ray reports an unwritable HOME, a long temporary path or a full disk from deep inside its own processes, well
after the start or in the middle of a run. Everything here is a few system calls and imports neither ray nor
torch. Each check takes the values that it judges, so that a test needs no broken machine.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from raychains.core.errors import UserError

MINIMUM_OBJECT_STORE = 80_000_000
"""Smallest object store we ask Ray for, in bytes; Ray itself refuses less than 75 MiB."""

DEFAULT_OBJECT_STORE = 1_000_000_000
"""Largest object store that is taken unasked: samples are durable files, the store is only their cache."""

DEFAULT_SHARE = 0.2
"""Share of the physical memory that the object store takes at most, unasked."""

SLOW_STORAGE_LIMIT = 10_000_000_000
"""An object store above this many bytes never falls back from /dev/shm to files: Ray refuses to start."""

FULL_DISK = 0.95
"""Ray stops spilling above this used share of the disk (its `local_fs_capacity_threshold`)."""

SESSION_SOCKET = "raya1b2c3d4/s/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
"""The longest path that Ray's object store makes below `ray_temp_dir`, in a private folder: seven digits of process
id."""


def object_store_bytes(requested: int | None) -> int:
    """Return the bytes of object store to ask Ray for: as requested, else 1 GB or a fifth of the memory if that is
    less.

    Ray's own default, 30 % of the memory, is too much beside chains that hold networks.
    """
    memory = physical_memory()
    if requested is None:
        return max(MINIMUM_OBJECT_STORE, min(DEFAULT_OBJECT_STORE, int(memory * DEFAULT_SHARE)))
    if not MINIMUM_OBJECT_STORE <= requested <= memory:
        raise UserError(
            f"object_store_memory must lie between {MINIMUM_OBJECT_STORE} and {memory} bytes (this machine's "
            f"memory), got {requested}: leave it out for 1 GB or a fifth of the memory"
        )
    return requested


def physical_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes of memory we may use: the machine's, or the container's limit (cgroup v1 or v2) if less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limit = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if limit.isdigit():  # v2 writes "max" where there is no limit, v1 a number beyond any memory
            total = min(total, int(limit))
    return total


def check(*, object_store_memory: int, temp_dir: Path | None = None) -> list[str]:
    """Before Ray starts on this machine: raise `UserError` for what would fail, return warnings for the rest.

    `temp_dir` is the folder in which Ray gets a private one; `None` means `ray_temp_dir`.
    """
    temp = ray_temp_dir(os.environ) if temp_dir is None else temp_dir
    token_known = has_token(os.environ, Path.home())
    problems = (
        None if token_known else home_problem(Path.home()),
        socket_problem(temp),
        disk_problem(temp, limit=full_disk_limit(os.environ)),
    )
    for problem in problems:
        if problem is not None:
            raise UserError(problem)
    if not sys.platform.startswith("linux"):
        return []  # elsewhere Ray keeps objects in files of its temporary folder anyway
    warning = shared_memory_warning(object_store_memory, shared_memory_bytes(), os.environ)
    return [] if warning is None else [warning]


def ray_temp_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder in which Ray would make its own temporary one: where its `get_default_ray_temp_dir` lies."""
    if "RAY_TMPDIR" in environ:
        return Path(environ["RAY_TMPDIR"])
    if sys.platform.startswith("linux") and "TMPDIR" in environ:
        return Path(environ["TMPDIR"])
    return Path("/tmp")


def has_token(environ: Mapping[str, str], home: Path) -> bool:
    """Return whether Ray writes no token to HOME: authentication is off, or a token is given or there already."""
    if environ.get("RAY_AUTH_MODE", "token").lower() != "token":
        return True
    if environ.get("RAY_AUTH_TOKEN") or environ.get("RAY_AUTH_TOKEN_PATH"):
        return True
    try:
        return bool((home / ".ray" / "auth_token").read_text().strip())
    except (OSError, UnicodeDecodeError):
        return False


def home_problem(home: Path) -> str | None:
    """Return why Ray could not write its token below `home`, if so; asked by writing: root passes `os.access`."""
    folder = home / ".ray"
    try:
        with tempfile.NamedTemporaryFile(dir=_nearest_existing(folder), prefix=".raychains-"):
            return None
    except OSError as error:
        return (
            f"HOME must be a folder that can be written to, got {home} ({error.strerror}): Ray keeps its "
            f"authentication token in {folder}; set HOME to another folder, such as HOME=$(mktemp -d)"
        )


def socket_problem(temp: Path) -> str | None:
    """Return why Ray's sockets would not fit below `temp`, if so: the kernel's limit is 107 bytes (103 on macOS)."""
    limit = 103 if sys.platform == "darwin" else 107
    length = len(os.fsencode(os.path.abspath(temp / SESSION_SOCKET)))
    if length <= limit:
        return None
    below = len(SESSION_SOCKET) + 1
    return (
        f"Ray's temporary folder must be at most {limit - below} bytes long, got {length - below} "
        f"({temp}): its socket paths may not exceed {limit}; set RAY_TMPDIR to a shorter folder, such as /tmp"
    )


def full_disk_limit(environ: Mapping[str, str]) -> float:
    """Return the used share of the disk above which Ray stops spilling: 0.95, or what the environment tells Ray."""
    try:
        return float(environ["RAY_local_fs_capacity_threshold"])
    except (KeyError, ValueError):
        return FULL_DISK


def disk_problem(temp: Path, *, limit: float = FULL_DISK) -> str | None:
    """Return why Ray could not spill objects to `temp`, if so: its disk is used beyond the share `limit`.

    Used is what is not free *to this user*, as Ray counts it: blocks reserved for root count as used.
    """
    usage = shutil.disk_usage(_nearest_existing(temp))
    used = 1 - usage.free / usage.total if usage.total else 0.0
    if used <= limit:
        return None
    return (
        f"the disk of {temp} must be at most {limit:.0%} full, got {used:.1%}: Ray stops spilling there; "
        f"free {(used - limit) * usage.total / 1e9:.1f} GB or set RAY_TMPDIR to a folder on another disk"
    )


def _nearest_existing(path: Path) -> Path:
    """Return `path` or the first folder above it that exists: where Ray would begin to create it."""
    absolute = path.absolute()
    return next(folder for folder in (absolute, *absolute.parents) if os.path.exists(folder))


def shared_memory_bytes(folder: Path = Path("/dev/shm")) -> int:
    """Return the bytes free in shared memory, as Ray counts them; 0 where there is none."""
    try:
        stats = os.statvfs(folder)
    except OSError:
        return 0
    return stats.f_bsize * stats.f_bavail


def shared_memory_warning(object_store_memory: int, available: int, environ: Mapping[str, str]) -> str | None:
    """Return the warning that the object store exceeds the shared memory; raises where Ray would refuse to start."""
    if available >= object_store_memory:
        return None
    asked = object_store_memory / 1e6
    state = f"/dev/shm has {available / 1e6:.0f} MB free, the object store wants {asked:.0f} MB"
    advice = f"in a container pass --shm-size={object_store_memory * 1.1 / 2**30:.1f}g"
    if object_store_memory > SLOW_STORAGE_LIMIT and not environ.get("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE"):
        raise UserError(
            f"object_store_memory above {SLOW_STORAGE_LIMIT} bytes must fit into shared memory, got "
            f"{object_store_memory}: {state}; {advice} or ask for less"
        )
    return f"{state}: Ray will use files in its temporary folder, which is slower; {advice}"
