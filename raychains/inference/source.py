"""The ensemble to serve, from an exported file or from a run that may still go on: its version, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from raychains.core.errors import UserError, require, shown
from raychains.data.root import rooted
from raychains.inference import file, networks
from raychains.inference.ensemble import PosteriorPredictive
from raychains.inference.export import input_form, posterior
from raychains.inference.predictive import Selection, dropped_chains, import_parts, records_of, select
from raychains.planning import Comparison
from raychains.store import RunStore, Storage, split_run_path


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An ensemble and the facts about it that clients are told."""

    posterior: PosteriorPredictive
    version: Hashable
    about: Mapping[str, Any]
    """``task``, ``arm``, ``run``, ``kind``, ``samples``, ``input`` (`export.input_form`), ``digests`` of the samples."""


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A file of `raychains export`; another one may be renamed to its name."""

    path: str
    model: nn.Module | None = None
    """The network, where the file names none of `raychains.models`."""
    trust: bool = False

    def check(self) -> None:
        """Raise `UserError` where `load` would: for a file that is not whole, or a network that cannot be built."""
        about = file.describe(self.path)
        if self.model is None:
            networks.rebuild(about.get("network"), self.path, self.trust)

    def version(self) -> Hashable:
        """Return a value that changes with the file."""
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise UserError(f"source must be a file, got {self.path!r}: {error.strerror}") from None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def load(self, device: str) -> Loaded:
        """Return the file's ensemble on a device."""
        version, about = self.version(), file.describe(self.path)
        made = PosteriorPredictive.load(self.path, self.model, device=device, trust=self.trust)
        described = {name: about.get(name) for name in ("run", "arm", "kind", "input")}
        task = about.get("task")
        described["task"] = task.get("kind") if isinstance(task, dict) else None
        digests = [one[3] for one in about.get("samples", ()) if isinstance(one, list) and len(one) == 4]
        described |= {"samples": len(made), "digests": digests, "sha256": about.get("sha256")}
        return Loaded(posterior=made, version=version, about=described)


@dataclass(frozen=True, kw_only=True)
class RunSource:
    """A run in a store, finished or not: the samples of one arm and group of repeats that are there."""

    store: str = field(repr=False)
    """Its URI, secrets included."""
    name: str
    arm: str | None = None
    group: int = 0
    first: int | None = None
    data_root: str | None = None
    trust: bool = False

    @property
    def _which(self) -> dict[str, Any]:
        return {"arm": self.arm, "group": self.group, "first": self.first, "unfinished": True}

    def _run(self) -> tuple[RunStore, Comparison]:
        run = RunStore(Storage(self.store), self.name)
        return run, Comparison.from_json(run.plan().get("comparison"))

    def _selection(self) -> Selection:
        run, comparison = self._run()
        if self.trust:
            import_parts(comparison)
        return select(run.root, comparison, dropped=dropped_chains(run, comparison), **self._which)

    def check(self) -> None:
        """Raise `UserError` where `load` would: no such run or arm, no sample yet, or a task that predicts nothing."""
        with rooted(self.data_root):
            self._selection()

    def version(self) -> Hashable:
        """Return a value that changes with the samples; no task is built and no sample is opened."""
        run, comparison = self._run()
        found = records_of(run.root, comparison, dropped=dropped_chains(run, comparison), **self._which)
        return tuple(record.sha256 for _, record in found)

    def load(self, device: str) -> Loaded:
        """Return the ensemble of the samples that are there, on a device."""
        with rooted(self.data_root):
            selection = self._selection()
            made = posterior(selection).to(device)
            form = input_form(selection.task)
        digests = tuple(record.sha256 for _, record in selection.records)
        about: dict[str, Any] = {
            "task": selection.task.spec().kind,
            "run": self.name,
            "arm": selection.arm,
        }
        about |= {"kind": made.kind, "input": form, "samples": len(made), "digests": list(digests)}
        return Loaded(posterior=made, version=digests, about=about)


Source = FileSource | RunSource


def source_of(
    path: str,
    *,
    arm: str | None = None,
    group: int = 0,
    first: int | None = None,
    data_root: str | None = None,
    model: nn.Module | None = None,
    trust: bool = False,
) -> Source:
    """Return the source that a path names, which processes with other working folders find as well.

    Args:
        path: a file of `raychains export`, or STORE/runs/NAME.
        arm: of a run, its arm; default the first.
        group: of a run, the group of repeats.
        first: of a run, take this many samples.
        data_root: of a run, the folder with the data sets.
        model: of a file, the network, where it names none of `raychains.models`.
        trust: import the modules that the run or the file names.

    Raises:
        UserError: neither a file nor a run's path, or an argument that is the other one's.
    """
    require(model is None or isinstance(model, nn.Module), "model", model, "be a torch.nn.Module")
    expanded = os.path.expanduser(path)
    of_run = {"arm": arm, "group": group or None, "first": first, "data_root": data_root}
    if os.path.isfile(expanded):
        for name, value in of_run.items():
            if value is not None:
                raise UserError(f"{name} must be left out for a file, got {shown(value)}: it holds one ensemble")
        return FileSource(path=os.path.abspath(expanded), model=model, trust=trust)
    if model is not None:
        raise UserError("model must be left out for a run: its task builds the network")
    try:
        store, name = split_run_path(path)
    except UserError:
        raise UserError(
            f"source must be an existing file of raychains export, or a run, STORE/runs/NAME, got {path!r}"
        ) from None
    return RunSource(
        store=Storage(store).uri, name=name, arm=arm, group=group, first=first, data_root=data_root, trust=trust
    )
