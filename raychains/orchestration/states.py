"""A chain's state outside of it: copied for the writer, packed for other ranks, replayed where it diverged."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.chain import Chain
    from raychains.store import ChainStore

log = logging.getLogger(__name__)


def diagnosed(error: Any, chain: Chain, store: ChainStore, incarnation: int) -> str:
    """Where and why a chain diverged, found by a replay from its newest checkpoint and written to its folder."""
    from raychains.divergence import diagnose

    attempt, device = chain.noise_attempt, chain.device
    try:
        state = store.newest_checkpoint()
        found = diagnose(
            chain.spec, state and state["chain"], error, task=chain.task, device=device, noise_attempt=attempt,
            start=chain.start,
        )  # fmt: skip
        store.publish_diagnosis(found.to_json(), found.step, incarnation)
        return found.sentence()
    except Exception:
        log.warning("chain %s diverged; the replay failed", chain.spec.digest[:12], exc_info=True)
        return str(error)


def copied(value: Any) -> Any:
    """A nested state with tensors of its own."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [copied(v) for v in value]
    return value


def packed(state: Mapping[str, Any] | None) -> bytes:
    """A checkpoint's nested state as bytes; none are none."""
    from raychains.store import codec

    if state is None:
        return b""
    tensors, tree = codec.flatten(state)
    return codec.encode(tensors, {"state": tree})


def unpacked(data: bytes) -> dict[str, Any] | None:
    """What `packed` was given."""
    from raychains.store import codec

    if not data:
        return None
    tensors, description = codec.decode(data)
    found: dict[str, Any] = codec.unflatten(tensors, description["state"])
    return found
