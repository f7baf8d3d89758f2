"""Ray Tune without its own voice and files: a temporary folder, no tables, no logs; people hear from us."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

SETTINGS = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the newer output prints a table whatever it is told
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # relative paths of a person's task stay what they are
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours stops cleanly
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",  # the store is what a sweep goes on from
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "1000000000",
}
LOGGERS = ("ray.tune", "ray.train", "ray.air")


@contextlib.contextmanager
def quiet(pending: int) -> Iterator[str]:
    """A folder for Tune while it keeps still.

    Args:
        pending: trials that may wait for resources at once: a cluster grows by what waits, and processes start together.
    """
    given = {**SETTINGS, "TUNE_MAX_PENDING_TRIALS_PG": str(pending)}
    before = {name: os.environ.get(name) for name in given}
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    os.environ.update(given)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with tempfile.TemporaryDirectory(prefix="raychains-sweep-") as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield folder
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Unkept:
    """Base of what Tune holds and would pickle into its folder: nothing of a sweep is ever restored from there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Unkept, ()

    def __deepcopy__(self, memo: Any) -> Any:
        return self
