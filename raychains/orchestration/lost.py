"""What an error of a Ray call says about its cause: a process or node that went, or the call itself."""

from __future__ import annotations

from ray.exceptions import ObjectLostError, RayTaskError

from raychains.errors import StorageAway


def lost_object(error: BaseException) -> bool:
    """Whether an object that the call needed, or its result, went with a node."""
    return any(isinstance(e, ObjectLostError) for e in _causes(error))


def storage_away(error: BaseException) -> bool:
    """Whether the call could not reach the store."""
    return any(isinstance(e, StorageAway) for e in _causes(error))


def died(error: BaseException) -> bool:
    """Whether the actor itself is gone: its process, its node, or by Ray's out-of-memory kill."""
    return not isinstance(error, RayTaskError | ObjectLostError)


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what Ray says it was raised for: an argument's error is passed on by every call that needs it."""
    found: list[BaseException] = []
    now: object = error
    while isinstance(now, BaseException) and now not in found:
        found.append(now)
        now = getattr(now, "cause", None) or now.__cause__
    return found
