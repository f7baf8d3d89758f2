"""The ensemble to serve, from an exported file or from a run that may still go on, and how it is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from raychains import tasks
from raychains.core.data_root import rooted
from raychains.core.errors import UserError, require, shown
from raychains.inference import file, networks
from raychains.inference.ensemble import PosteriorPredictive, likelihood_of
from raychains.inference.export import input_form, posterior
from raychains.inference.predictive import Records, Selection, dropped_chains, import_parts, select
from raychains.planning import Comparison
from raychains.store import RunStore, Storage, split_run_path

Loaded = tuple[PosteriorPredictive, Mapping[str, Any]]
"""An ensemble and the facts about it that clients are told.

They are ``task``, ``arm``, ``run``, ``kind``, ``samples``, ``input`` (`export.input_form`) and samples' ``digests``.
"""


@dataclass(frozen=True, kw_only=True)
class FileSource:
    """A file of `raychains export`."""

    path: str
    sha256: str
    """Of its tensors."""
    model: nn.Module | None = None
    """The network, where the file names none of `raychains.models`."""
    trust: bool = False

    def load(self, device: str) -> Loaded:
        """Return the file's ensemble on a device.

        Raises:
            UserError: the file is not whole, or another one has its name.
        """
        about = file.describe(self.path)
        if about["sha256"] != self.sha256:
            raise UserError(
                f"source must be the file that was there when the server started, got another one: {self.path}"
            )
        made = PosteriorPredictive.load(self.path, self.model, device=device, trust=self.trust)
        described = {name: about.get(name) for name in ("run", "arm", "kind", "input")}
        task = about.get("task")
        described["task"] = task.get("kind") if isinstance(task, dict) else None
        digests = [one[3] for one in about.get("samples", ()) if isinstance(one, list) and len(one) == 4]
        return made, described | {"samples": len(made), "digests": digests, "sha256": self.sha256}


@dataclass(frozen=True, kw_only=True)
class RunSource:
    """Samples of one arm and group of repeats of a run, whose files stay as they are when the run goes on."""

    store: str = field(repr=False)
    """Its URI, secrets included."""
    name: str
    arm: str
    records: Records = field(repr=False)
    weights: Sequence[float] | None = field(default=None, repr=False)
    """Of the samples; None where all weigh the same."""
    data_root: str | None = None
    trust: bool = False

    def load(self, device: str) -> Loaded:
        """Return the samples' ensemble on a device."""
        run = RunStore(Storage(self.store), self.name)
        with rooted(self.data_root):
            if self.trust:
                import_parts(_comparison(run))
            task = tasks.build(self.records[0][0].task)
            own: dict[str, Any] = {"arm": self.arm, "records": self.records, "weights": self.weights}
            made = posterior(Selection(root=run.root, task=task, **own)).to(device)
            form = input_form(task)
        return made, {
            "task": task.spec().kind,
            "run": self.name,
            "arm": self.arm,
            "kind": made.kind,
            "input": form,
            "samples": len(made),
            "digests": [record.sha256 for _, record in self.records],
        }


def _comparison(run: RunStore) -> Comparison:
    return Comparison.from_json(run.plan().get("comparison"))


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
    """Return the source that a path names, as it is now; processes with other working folders find it as well.

    Args:
        path: a file of `raychains export`, or STORE/runs/NAME, finished or not.
        arm: of a run, its arm; default the first.
        group: of a run, the group of repeats.
        first: of a run, take this many samples; default all that are there.
        data_root: of a run, the folder with the data sets.
        model: of a file, the network, where it names none of `raychains.models`.
        trust: import the modules that the run or the file names.

    Raises:
        UserError: neither a file nor a run's path, or an argument that is the other one's; a file that is not whole, or
            whose network cannot be built; no such run or arm, no sample yet, or a task that predicts nothing.
    """
    require(model is None or isinstance(model, nn.Module), "model", model, "be a torch.nn.Module")
    expanded = os.path.expanduser(path)
    of_run = {"arm": arm, "group": group or None, "first": first, "data_root": data_root}
    if os.path.isfile(expanded):
        for name, value in of_run.items():
            if value is not None:
                raise UserError(f"{name} must be left out for a file, got {shown(value)}: it holds one ensemble")
        absolute = os.path.abspath(expanded)
        about = file.describe(absolute)
        if model is None:
            networks.rebuild(about.get("network"), absolute, trust)
        likelihood_of(about.get("likelihood"), about.get("kind", "classification"), absolute, trust)
        return FileSource(path=absolute, sha256=about["sha256"], model=model, trust=trust)
    if model is not None:
        raise UserError("model must be left out for a run: its task builds the network")
    try:
        store, name = split_run_path(path)
    except UserError:
        raise UserError(
            f"source must be an existing file of raychains export, or a run, STORE/runs/NAME, got {path!r}"
        ) from None
    run = RunStore(Storage(store), name)
    comparison = _comparison(run)
    with rooted(data_root):
        if trust:
            import_parts(comparison)
        dropped = dropped_chains(run, comparison)
        found = select(run.root, comparison, arm, group, first, dropped=dropped, unfinished=True)
    own: dict[str, Any] = {"arm": found.arm, "records": found.records, "weights": found.weights}
    return RunSource(store=run.root.uri, name=name, **own, data_root=data_root, trust=trust)
