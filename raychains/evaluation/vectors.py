"""A network's sample as one flat vector, and a few numbers of it that can be followed along a chain."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from raychains.errors import require, unknown_name
from raychains.evaluation.base import Array

Tensors = Mapping[str, Any]
"""A sample's named tensors (torch, any device and precision; or arrays)."""


def pieces(sample: Tensors, names: Collection[str] | None = None) -> Iterator[tuple[str, Array]]:
    """(name, values [n] as float64 or float32) of each floating tensor, ascending by name.

    Args:
        sample: named tensors.
        names: which; give the model's parameters', lest buffers such as BatchNorm's statistics count. Default all.

    Raises:
        UserError: a name that the sample lacks.
    """
    for name in sorted(sample) if names is None else sorted(names):
        if name not in sample:
            raise unknown_name("tensor", name, sample)
        values = as_array(sample[name])
        if values.dtype.kind == "f":
            yield name, values.reshape(-1)


def as_array(tensor: Any) -> Array:
    """A numpy array of ``tensor`` on the CPU; half precisions become float32, which numpy computes in."""
    if not hasattr(tensor, "detach"):
        return np.asarray(tensor)
    values = tensor.detach().cpu()
    return (values.float() if values.is_floating_point() and values.element_size() < 4 else values).numpy()


def flat(sample: Tensors, names: Collection[str] | None = None) -> Array:
    """θ, [d]: every floating tensor of ``sample`` end to end, ascending by name (see `pieces`)."""
    parts = [values for _, values in pieces(sample, names)]
    require(len(parts) > 0, "sample", sorted(sample), "hold a floating tensor")
    return np.concatenate(parts)


def projections(
    samples: Iterable[Tensors], *, count: int = 4, seed: int = 0, names: Collection[str] | None = None
) -> dict[str, Array]:
    """Numbers of network samples for ESS, R-hat and autocorrelation: the norm and random projections of θ.

    A projection is u·θ with u a fixed direction, uniform on the unit sphere, drawn anew for each tensor from
    (seed, its name), so that it is the same for every sample, chain and machine and is never held as a whole. Over
    directions its variance is the mean posterior variance of a coordinate: a slow or stuck direction shows in a few.
    One sample is held at a time.

    Args:
        samples: of one chain, in their order.
        count: number of directions.
        seed: of the directions.
        names: as for `pieces`.

    Returns:
        ``norm`` (‖θ‖₂) and ``projection 1`` … , each [samples].

    Raises:
        UserError: no sample, ``count`` below 0, or a name that a sample lacks.
    """
    require(count >= 0, "count", count, "be 0 or more")
    rows = []
    for sample in samples:
        squared, along, length = 0.0, np.zeros(count), np.zeros(count)
        for name, values in pieces(sample, names):
            x = values.astype(np.float64, copy=False)
            squared += float(x @ x)
            rng = generator(seed, name)
            for r in range(count):
                u = rng.standard_normal(len(x), dtype=np.float32).astype(np.float64)
                along[r] += u @ x
                length[r] += u @ u
        rows.append([np.sqrt(squared), *(along / np.sqrt(np.maximum(length, np.finfo(float).tiny)))])
    require(len(rows) > 0, "samples", 0, "be at least 1")
    columns = np.array(rows).T
    return {"norm": columns[0], **{f"projection {r + 1}": columns[r + 1] for r in range(count)}}


def generator(seed: int, name: str) -> np.random.Generator:
    """The stream of one tensor's random direction: equal on every machine, and no other tensor's."""
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def combined(terms: Sequence[tuple[float, Tensors]]) -> dict[str, Any]:
    """Σ_i c_i·θ_i of named torch tensors, in each tensor's own type; one term of coefficient 1 is the very sample.

    Every floating tensor is combined, buffers included: of BatchNorm's statistics that is a start to estimate them from
    and no more. Tensors of integers are the first term's.

    Args:
        terms: coefficients, and tensors of the same names and shapes.

    Raises:
        UserError: no term, or tensors of different networks.
    """
    require(len(terms) > 0, "terms", 0, "be at least 1")
    first = terms[0][1]
    for _, other in terms[1:]:
        same = list(first) == list(other) and all(tuple(first[n].shape) == tuple(other[n].shape) for n in first)
        require(same, "samples", "other names or shapes", "be of the same network")
    if len(terms) == 1 and terms[0][0] == 1:
        return dict(first)
    # In double precision, then back: half precisions lose digits in the products.
    return {
        name: sum(c * tensors[name].double() for c, tensors in terms).to(a.dtype) if a.is_floating_point() else a
        for name, a in first.items()
    }
