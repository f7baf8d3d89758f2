"""Preflight finds what would stop or stall Ray, says so in one line, and costs no import of ray or torch."""

import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import ray

from raychains.api.run_context import RunContext
from raychains.callbacks import CallbackList
from raychains.core.config import Run
from raychains.orchestration.cluster import preflight, session
from raychains.store import RunStore, Storage
from tests.checks import refused

GB = 10**9
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which every check passes, whatever the one that runs the tests is like; gives its HOME."""
    for name in ("RAY_TMPDIR", "TMPDIR", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("RAY_local_fs_capacity_threshold", raising=False)
    monkeypatch.delenv("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GB, 50 * GB, 50 * GB))
    monkeypatch.setattr(preflight, "shared_memory_bytes", lambda: 20 * GB)
    return tmp_path


def test_a_healthy_machine_gives_no_warnings_and_leaves_nothing_behind(healthy: Path) -> None:
    assert preflight.check(object_store_memory=GB) == []
    assert list(healthy.iterdir()) == []


def test_importing_preflight_imports_neither_ray_nor_torch() -> None:
    code = "import sys, raychains.orchestration.cluster.preflight; print(sorted({'ray', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("memory", "requested", "expected"),
    [
        *((64 * GB, None, GB), (5 * GB, None, GB), (2 * GB, None, 400_000_000), (GB // 4, None, 80_000_000)),
        *((8 * GB, asked, asked) for asked in (80_000_000, 3 * GB, 8 * GB)),
    ],
)
def test_object_store_defaults_to_a_gigabyte_or_a_fifth_of_the_memory_and_a_request_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch, memory: int, requested: int | None, expected: int
) -> None:
    monkeypatch.setattr(preflight, "physical_memory", lambda: memory)
    assert preflight.object_store_bytes(requested) == expected


@pytest.mark.parametrize("requested", [-1, 0, 79_999_999, 8 * GB + 1])
def test_an_impossible_object_store_is_refused_naming_field_value_and_range(
    monkeypatch: pytest.MonkeyPatch, requested: int
) -> None:
    monkeypatch.setattr(preflight, "physical_memory", lambda: 8 * GB)
    with refused("object_store_memory", f"got {requested}", "80000000", str(8 * GB)):
        preflight.object_store_bytes(requested)


@pytest.mark.parametrize(
    ("file", "limit", "bound"),
    [
        ("memory.max", "300000000\n", 300_000_000),
        ("memory/memory.limit_in_bytes", "300000000\n", 300_000_000),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
    ],
)
def test_physical_memory_is_the_containers_limit_when_that_is_less(
    tmp_path: Path, file: str, limit: str, bound: int | None
) -> None:
    machine = preflight.physical_memory(tmp_path / "absent")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(limit)
    assert preflight.physical_memory(tmp_path) == (machine if bound is None else bound)


@pytest.mark.parametrize("home", ["file", "file/below"])
def test_a_home_that_cannot_be_written_is_fatal_and_says_how_to_fix_it(
    healthy: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    (healthy / "file").write_text("")
    monkeypatch.setenv("HOME", str(healthy / home))
    with refused(str(healthy / home), "set HOME to"):
        preflight.check(object_store_memory=GB)


def test_an_absent_home_is_fine_where_ray_can_create_it_and_one_that_refuses_a_new_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write into read-only folders, so the refusal is the probe's own: any file that it tries to make."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    assert preflight.home_problem(tmp_path / "absent" / "home") is preflight.home_problem(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with monkeypatch.context() as refusing:
        refusing.setattr("tempfile.NamedTemporaryFile", refuse)
        assert preflight.home_problem(tmp_path) is not None
    (tmp_path / ".ray").write_text("a file where Ray wants a folder")
    assert preflight.home_problem(tmp_path) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "secret"), ("RAY_AUTH_TOKEN_PATH", "/secrets/token")],
)
def test_home_does_not_matter_when_ray_needs_no_token_from_it(
    healthy: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv(name, value)
    assert preflight.check(object_store_memory=GB) == []


def test_a_token_written_earlier_is_enough(tmp_path: Path) -> None:
    assert not preflight.has_token({}, tmp_path)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert preflight.has_token({}, tmp_path)
    assert preflight.has_token({"RAY_AUTH_MODE": "token"}, tmp_path)


def test_the_temporary_folder_is_rays_own_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert preflight.ray_temp_dir({}) == Path("/tmp")
    assert preflight.ray_temp_dir({"TMPDIR": "/scratch"}) == Path("/scratch")
    assert preflight.ray_temp_dir({"TMPDIR": "/scratch", "RAY_TMPDIR": "/fast"}) == Path("/fast")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert preflight.ray_temp_dir({"TMPDIR": "/var/folders/x"}) == Path("/tmp")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit is another elsewhere")
def test_the_socket_rule_is_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = 107 - len(preflight.SESSION_SOCKET) - 1
    monkeypatch.setattr(sys, "platform", "linux")
    assert preflight.socket_problem(Path("/" + "a" * (allowed - 1))) is None
    problem = preflight.socket_problem(Path("/" + "a" * allowed))
    assert problem is not None and f"at most {allowed} bytes" in problem and f"got {allowed + 1}" in problem
    assert preflight.socket_problem(Path("/" + "ä" * (allowed // 2 + 1))) is not None, "bytes count, not characters"
    with socket.socket(socket.AF_UNIX) as unix:  # the real verdict: 107 bytes are looked up, 108 are too long
        with pytest.raises(FileNotFoundError):
            unix.connect("/" + "a" * 106)
        with pytest.raises(OSError, match="too long"):
            unix.connect("/" + "a" * 107)


@pytest.mark.parametrize("by_option", [True, False])
def test_a_long_temporary_folder_is_fatal_and_names_ray_tmpdir(
    healthy: Path, monkeypatch: pytest.MonkeyPatch, by_option: bool
) -> None:
    long = Path("/tmp") / ("a" * 60)
    if not by_option:
        monkeypatch.setenv("RAY_TMPDIR", str(long))
    with refused("set RAY_TMPDIR"):
        preflight.check(object_store_memory=GB, temp_dir=long if by_option else None)


def test_a_disk_over_95_percent_full_is_fatal_and_says_how_much_to_free(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(100 * GB, 96 * GB, 4 * GB))
    with refused("got 96.0%", "free 1.0 GB", "RAY_TMPDIR"):
        preflight.check(object_store_memory=GB)
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.99")  # Ray's own is honoured
    assert preflight.check(object_store_memory=GB) == []


def test_blocks_reserved_for_root_count_as_used_and_a_folder_that_is_to_come_has_its_parents_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for usage, fits in ((Usage(2, 1, 1), True), (Usage(100 * GB, 92 * GB, 3 * GB), False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: asked.append(path) or usage)
        assert (preflight.disk_problem(tmp_path / "not" / "yet") is None) is fits
    assert asked == [tmp_path] * 2


def test_little_shared_memory_is_a_warning_that_advises_shm_size_and_none_outside_linux(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(preflight, "shared_memory_bytes", lambda: 64_000_000)
    (warning,) = preflight.check(object_store_memory=GB)
    assert all(part in warning for part in ("64 MB", "1000 MB", "--shm-size=1.0g")) and "\n" not in warning
    monkeypatch.setattr(sys, "platform", "darwin")
    assert preflight.check(object_store_memory=GB) == []


def test_an_object_store_that_ray_would_not_move_to_files_is_fatal() -> None:
    with refused("object_store_memory"):
        preflight.shared_memory_warning(11 * GB, GB, {})
    allowed = {"RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE": "1"}
    assert preflight.shared_memory_warning(11 * GB, GB, allowed) is not None
    assert preflight.shared_memory_bytes(Path("/absent")) == 0


def test_a_run_checks_the_machine_where_ray_is_to_be_started_and_leaves_warnings_to_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checked: list[Any] = []

    def check(**options: Any) -> list[str]:
        checked.append(options)
        return ["little shared memory"]

    monkeypatch.setattr(preflight, "check", check)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for up in (True, False):
        monkeypatch.setattr(ray, "is_initialized", lambda up=up: up)
        store = RunStore(Storage(tmp_path), f"up-{up}")
        with RunContext(Run(), store, CallbackList()).leased(lambda: None):
            assert len(checked) == (not up)
    assert "shared memory" not in caplog.text
    session.check_address()
    assert "shared memory" in caplog.text
