"""The network that an exported file names, rebuilt without its task's data."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from raychains import models
from raychains.deploy import stacks
from raychains.errors import UserError
from raychains.tasks import Task


def named(task: Task) -> dict[str, Any] | None:
    """The task's network as JSON, with the revision of one of ours; None when the task names none."""
    network = task.named_network()
    if network is None or "name" not in network:
        return network
    return {**network, "revision": models.revision(network["name"])}


def rebuild(network: Any, file: str, trust: bool) -> nn.Module:
    """The network that ``file`` names; one of ours has no parameters of its own, which an ensemble does not use.

    Only networks of `raychains.models` are built without ``trust``: any other path is code that would be imported.

    Raises:
        UserError: the file names none, one that is not trusted, or one that cannot be built here.
    """
    if network is None:
        raise UserError(
            f"model must be given for {file}: its task does not name its network, as in load(file, model=net)"
        )
    settings = network.get("settings", {}) if isinstance(network, Mapping) else None
    if not isinstance(settings, Mapping) or not all(isinstance(k, str) for k in settings):
        raise UserError(f"{file}: it must name a network and its settings, got {network!r}")
    if "name" in network:
        name = str(network["name"])
        if network.get("revision") != models.revision(name):
            raise UserError(
                f"{file}: network {name} must be of revision {models.revision(name)}, this version's, "
                f"got {network.get('revision')!r}"
            )
        return _ours(name, settings, file)
    path = str(network.get("path"))
    if not trust:
        raise UserError(
            f"trust must be True to load {file}: it names the network {path!r}, whose module would be imported; "
            "or give the network, load(file, model=net)"
        )
    module, _, name = path.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)(**settings)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(f"{file}: the network {path!r} cannot be built here: {error}") from None
    if not isinstance(made, nn.Module):
        raise UserError(f"{file}: {path!r} must build a torch.nn.Module, got {type(made).__name__}")
    return made


def _ours(name: str, settings: Mapping[str, Any], file: str) -> nn.Module:
    """A network of `raychains.models` without memory, whatever sizes a file asks for, but for buffers that none stores."""
    try:
        with torch.device("meta"):
            network = models.build(name, **settings)
        return models.build(name, **settings) if stacks.constants(network) else network
    except UserError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{file}: the network {name!r} cannot be built of {dict(settings)!r}: {reason}") from None
