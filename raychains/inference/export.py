"""A run's arm as an ensemble: in memory, or as one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from raychains import __version__
from raychains.chain.precision import built
from raychains.core import tree
from raychains.core.errors import UserError, require, shown
from raychains.core.validation import path_of
from raychains.inference import file, networks
from raychains.inference.ensemble import PosteriorPredictive
from raychains.inference.families import family_of
from raychains.inference.predictive import Selection, as_in_chain
from raychains.store import initial_states
from raychains.tasks.likelihoods import distributed_to_json

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Progress = Callable[[int, int], None]
"""Called with the number of samples done, and of all."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file that was written."""

    path: Path
    samples: int
    bytes: int
    arm: str
    network: Mapping[str, Any] | None
    """The network that the file names; None: the user passes the network to `PosteriorPredictive.load`."""
    likelihood: Mapping[str, Any] | None = None
    """How the file states a likelihood that is a distribution; others need none."""


def export(
    selection: Selection, to: str | Path, *, run: str = "", dtype: str | None = None, progress: Progress | None = None
) -> Exported:
    """Write the selected samples as one file that `PosteriorPredictive.load` reads.

    Args:
        selection: the samples.
        to: a new file.
        run: the run's name, for the file's users.
        dtype: fp32, bf16 or fp16: what parameters, and buffers of their dtype, are rounded to; None keeps the samples'
            own.
        progress: called after each sample.

    Raises:
        UserError: a name that is taken, an unknown dtype, a value that fp16 cannot hold, or no room.
    """
    require(progress is None or callable(progress), "progress", progress, "be a function of (samples written, samples)")
    task: Any = selection.task
    if dtype is not None and (not isinstance(dtype, str) or dtype not in DTYPES):
        raise UserError(f"dtype must be one of {', '.join(DTYPES)}, got {shown(dtype)}")
    kind = family_of(task).exported()
    if "likelihood" in kind:
        kind |= {"likelihood": distributed_to_json(kind["likelihood"]), "loss": kind["likelihood"].name}
    shared = common(selection)
    network, size = networks.named(task), len(selection.records)
    about = {
        "raychains": __version__,
        "run": run,
        "arm": selection.arm,
        "task": task.spec().to_json(),
        **kind,
        "network": network,
        "preparation": task.preparation(),
        **({} if task.output is None else {"output": task.output}),
        "input": input_form(task),
        "shared": sorted(shared),
        "samples": [[spec.digest, r.meta.variable, r.meta.index, r.sha256] for spec, r in selection.records],
        **({} if selection.weights is None else {"weights": list(selection.weights)}),
    }
    path, rounded = Path(path_of("to", to)), DTYPES[dtype] if dtype is not None else None
    samples = _counted(_Own(selection, shared), progress)
    model = task.build_model(seed=0, lanes=1)
    kept = {name for name, t in model.state_dict().items() if t.dtype not in built(model)}
    length = file.write(path, samples, size, shared=shared, dtype=rounded, kept=kept, about=about)
    return Exported(
        path=path, samples=size, bytes=length, arm=selection.arm, network=network, likelihood=kind.get("likelihood")
    )


def posterior(selection: Selection, **settings: Any) -> PosteriorPredictive:
    """Return the selected samples as an ensemble in memory; ``settings`` as `PosteriorPredictive` takes them."""
    shared = common(selection)
    model = selection.task.build_model(seed=0, lanes=1)
    task = selection.task
    own = {"prepare": task.preparation(), "weights": selection.weights, "output": task.output}
    settings = {**own, **family_of(task).exported(), **settings}
    return PosteriorPredictive(model, _Own(selection, shared), shared=shared, **settings)


def input_form(task: Any) -> Any:
    """Return shape and dtype of one input as the task stores it, ``{"shape": […], "dtype": …}``, or a dict or a list
    of these; None where that is not known. A size that differs between batches is null.
    """
    first = networks.first_input(task)
    return None if first is None else tree.mapped(lambda t: _form(t, task.padded), first)


def _form(leaf: Tensor, padded: bool) -> dict[str, Any]:
    shape = [None, *leaf.shape[2:]] if padded and leaf.ndim > 1 else list(leaf.shape[1:])
    return {"shape": shape, "dtype": str(leaf.dtype).removeprefix("torch.")}


def common(selection: Selection) -> dict[str, Tensor]:
    """Return tensors that no sample stores because all chains left them at one start; none when starts differ."""
    starts = {initial_states.needed(spec) for spec, _ in selection.records}
    start = starts.pop()
    if starts or start is None:
        return {}
    stored, spec = next(selection.stored()), selection.records[0][0]
    model = selection.task.build_model(seed=0, lanes=1)
    network, own = model.state_dict(), built(model)
    tensors = initial_states.read(selection.root, start)
    return {n: as_in_chain(t, network[n].dtype, own, spec) for n, t in tensors.items() if n not in stored}


class _Own:
    """Each sample's tensors but the shared ones, as a collection that reads one at a time."""

    def __init__(self, selection: Selection, shared: Mapping[str, Tensor]) -> None:
        self._selection, self._shared = selection, shared

    def __len__(self) -> int:
        return len(self._selection.records)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for tensors in self._selection.completed():
            yield {name: t for name, t in tensors.items() if name not in self._shared}

    def __contains__(self, item: object) -> bool:
        return False


def _counted(samples: _Own, progress: Progress | None) -> Iterator[dict[str, Tensor]]:
    for s, sample in enumerate(samples, 1):
        yield sample
        if progress is not None:
            progress(s, len(samples))
