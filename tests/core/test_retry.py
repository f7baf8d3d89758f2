"""Which errors pass by themselves, how long they are waited for, and what people are told meanwhile."""

from __future__ import annotations

import errno
import logging
import os
import threading

import pytest

from raychains.core.errors import StorageAway, StorageRefused
from raychains.core.retry import Patience, Retrying, is_full, is_transient, refusal
from tests.processes import SECONDS

PASSING = ["EIO", "ESTALE", "EAGAIN", "EINTR", "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "EPIPE", "EBUSY"]
LASTING = ["ENOENT", "EACCES", "EPERM", "EINVAL", "EROFS", "EISDIR", "ENOTDIR", "EEXIST", "ENAMETOOLONG", "EFBIG"]
S3 = (
    "When initiating multiple part upload for key 'x' in bucket 'b': AWS Error {} during CreateMultipartUpload "
    "operation: {}"
)


@pytest.mark.parametrize("name", [*PASSING, "ENETUNREACH"])
def test_the_network_and_hiccups_pass(name: str) -> None:
    number = getattr(errno, name)
    assert is_transient(OSError(number, os.strerror(number)))


@pytest.mark.parametrize("name", LASTING)
def test_what_is_missing_forbidden_or_wrong_does_not_pass(name: str) -> None:
    number = getattr(errno, name)
    error = OSError(number, "connection timed out: try again")  # the number counts, not the words
    assert not is_transient(error) and not is_full(error)


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT"])
def test_a_full_disk_and_a_spent_quota_are_full(name: str) -> None:
    error = OSError(getattr(errno, name), "")
    assert is_full(error) and not is_transient(error)


@pytest.mark.parametrize(
    ("kind", "said", "passes"),
    [
        ("NETWORK_CONNECTION", "curlCode: 7, Could not connect to server", True),
        ("NETWORK_CONNECTION", "curlCode: 6, Could not resolve hostname", True),
        ("INTERNAL_FAILURE", "We encountered an internal error", True),
        ("SERVICE_UNAVAILABLE", "", True),
        ("SLOW_DOWN", "Please reduce your request rate", True),
        ("UNKNOWN (HTTP status 500)", "", True),
        ("UNKNOWN (HTTP status 503)", "", True),
        ("UNKNOWN (HTTP status 429)", "", True),
        ("ACCESS_DENIED", "the connection is not allowed: try again later", False),
        ("ACCESS_DENIED", "Access Denied", False),
        ("NO_SUCH_BUCKET", "The specified bucket does not exist", False),
        ("UNKNOWN (HTTP status 400)", "Unable to parse ExceptionName: InvalidBucketName", False),
        ("UNKNOWN (HTTP status 403)", "", False),
    ],
)
def test_object_stores_errors_are_told_by_their_words(kind: str, said: str, passes: bool) -> None:
    assert is_transient(OSError(S3.format(kind, said))) is passes


def test_an_object_store_may_be_full_too_or_refuse() -> None:
    full = OSError(S3.format("UNKNOWN (HTTP status 507)", "XMinioStorageFull"))
    assert is_full(full) and not is_transient(full)
    denied = OSError(S3.format("ACCESS_DENIED", "Access Denied\nand more"))
    assert refusal(denied) == str(denied).splitlines()[0] and refusal(OSError("what else")) is None


@pytest.mark.parametrize("error", [ValueError("connection"), RuntimeError("timed out"), KeyboardInterrupt()])
def test_other_exceptions_are_nobodys_outage(error: BaseException) -> None:
    assert not is_transient(error) and not is_full(error)


# Waiting


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Trouble:
    """Fails a number of times, then returns ``value``."""

    def __init__(self, times: int, error: OSError | None = None) -> None:
        self.left, self.calls = times, 0
        self.error = error or OSError(errno.EIO, "Input/output error")

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "value"


def retrying(patience: Patience | None = None) -> tuple[Time, Retrying]:
    time = Time()
    return time, Retrying(patience, sleep=time.sleep, clock=lambda: time.now)


def test_waits_double_up_to_the_cap_and_never_come_in_step() -> None:
    time, r = retrying(Patience(first=1.0, cap=10.0))
    assert r.call("written", "x", Trouble(7), lambda _: True) == "value"
    for wait, most in zip(time.waits, [1, 2, 4, 8, 10, 10, 10], strict=True):
        assert most / 2 <= wait <= most
    assert len(set(time.waits)) == 7


def test_without_anybody_to_ask_about_a_minute_is_spent() -> None:
    time, r = retrying()
    trouble = Trouble(10**6)
    with pytest.raises(StorageAway) as caught:
        r.call("written", "s3://b/x", trouble)
    assert time.now == pytest.approx(60.0) and trouble.calls > 10
    message = str(caught.value)
    assert "\n" not in message and caught.value.exit_status == 2
    assert all(w in message for w in ("s3://b/x", "written", "60 s", "Input/output error", "intact", "`resume=True`"))


def test_whoever_is_asked_decides_alone_however_long_it_takes() -> None:
    time, r = retrying(Patience(total=1.0))
    reasons: list[str] = []

    def keep_trying(reason: str) -> bool:
        reasons.append(reason)
        return True

    assert r.call("written", "x", Trouble(1000), keep_trying) == "value"
    assert len(reasons) == 1000 and set(reasons) == {"x could not be written: [Errno 5] Input/output error"}
    assert time.now > 1000
    with pytest.raises(StorageAway):
        r.call("written", "x", Trouble(1), lambda _: False)


def test_what_will_not_pass_is_raised_as_it_is() -> None:
    time, r = retrying()
    error = OSError(errno.EINVAL, "Invalid argument")
    with pytest.raises(OSError) as caught:
        r.call("written", "x", Trouble(1, error))
    assert caught.value is error and not time.waits


def test_full_and_refused_are_said_at_once() -> None:
    time, r = retrying()
    with pytest.raises(StorageRefused, match="free space and repeat with `resume=True`"):
        r.call("written", "x", Trouble(1, OSError(errno.ENOSPC, "No space left on device")), lambda _: True)
    for error in (PermissionError(errno.EACCES, "Permission denied"), OSError(S3.format("ACCESS_DENIED", "Denied"))):
        with pytest.raises(StorageRefused, match=r"let its files be written, but x could not be: .*[Dd]enied"):
            r.call("written", "x", Trouble(1, error), lambda _: True)
    assert not time.waits


def test_an_outage_is_logged_once_however_many_calls_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    r = Retrying(Patience(first=0.001, cap=0.001))
    meeting = threading.Barrier(4)

    def call() -> None:
        met: list[str] = []

        def keep_trying(reason: str) -> bool:
            met.append(reason)
            if len(met) == 3:
                meeting.wait(timeout=SECONDS)  # all are in the outage before one sees its end
            return True

        r.call("written", "x", Trouble(5), keep_trying)

    threads = [threading.Thread(target=call) for _ in range(4)]
    with caplog.at_level(logging.INFO, logger="raychains"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        first = [r.message for r in caplog.records]
        r.call("written", "x", Trouble(2))
    away = [m for m in first if "away" in m]
    assert 1 <= len(away) <= 4 and "Input/output error" in away[0], (
        "one that goes on failing after another's end says so"
    )
    later = [r.message for r in caplog.records][len(first) :]
    assert ["away" in m for m in later] == [True, False] and "back" in later[1], "the next outage is told again"


def test_an_answer_that_a_file_is_missing_ends_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    _, r = retrying()
    errors = iter([OSError(errno.EIO, "x"), FileNotFoundError(errno.ENOENT, "none")])

    def attempt() -> None:
        raise next(errors)

    with pytest.raises(FileNotFoundError):
        r.call("read", "x", attempt)
    assert ["back" in r.message for r in caplog.records] == [False, True]
