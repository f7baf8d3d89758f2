"""A network's sample as one flat vector, and a few numbers of it that can be followed along a chain."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from raychains.evaluation.evaluation import Array

Tensors = Mapping[str, Any]
"""A sample's named torch tensors, on any device and of any precision."""


def pieces(sample: Tensors, names: Collection[str]) -> Iterator[tuple[str, Array]]:
    """Yield (name, values [n] as float64 or float32) of each floating tensor of these names, ascending by name.

    Names are e.g. the model's parameters, so that buffers such as BatchNorm's statistics do not count.
    """
    for name in sorted(names):
        values = sample[name].detach().cpu()
        if values.is_floating_point():  # numpy computes in float32 at least
            yield name, (values.float() if values.element_size() < 4 else values).numpy().reshape(-1)


def flat(sample: Tensors, names: Collection[str]) -> Array:
    """Return θ, [d]: the named floating tensors of ``sample`` end to end, ascending by name (see `pieces`)."""
    return np.concatenate([values for _, values in pieces(sample, names)])


def projections(sample: Tensors, names: Collection[str], *, count: int = 4, seed: int = 0) -> dict[str, float]:
    """Return numbers of a network's sample for ESS, R-hat and autocorrelation: the norm and random projections of θ.

    A projection is u·θ with u a fixed direction, uniform on the unit sphere, drawn anew for each tensor from
    (seed, its name), so that it is the same for every sample, chain and machine and is never held as a whole. Over
    directions its variance is the mean posterior variance of a coordinate: a slow or stuck direction shows in a few.

    Returns:
        ``norm`` (‖θ‖₂) and ``projection 1`` ….
    """
    squared, along, length = 0.0, np.zeros(count), np.zeros(count)
    for name, values in pieces(sample, names):
        x = values.astype(np.float64, copy=False)
        squared += float(x @ x)
        rng = generator(seed, name)
        for r in range(count):
            u = rng.standard_normal(len(x), dtype=np.float32).astype(np.float64)
            along[r] += u @ x
            length[r] += u @ u
    unit = along / np.sqrt(np.maximum(length, np.finfo(float).tiny))
    return {"norm": math.sqrt(squared), **{f"projection {r + 1}": float(value) for r, value in enumerate(unit)}}


def generator(seed: int, name: str) -> np.random.Generator:
    """Return the generator of one tensor's random direction: equal on every machine, and no other tensor's."""
    digest = hashlib.sha256(f"{seed}|{name}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def combined(terms: Sequence[tuple[float, Tensors]]) -> dict[str, Any]:
    """Return Σ_i c_i·θ_i of named torch tensors of the same names and shapes, in each tensor's own type.

    One term of coefficient 1 is the very sample. Every floating tensor is combined, buffers included: of BatchNorm's
    statistics that is a start to estimate them from and no more. Tensors of integers are the first term's.
    """
    first = terms[0][1]
    if len(terms) == 1 and terms[0][0] == 1:
        return dict(first)
    # In double precision, then back: half precisions lose digits in the products.
    return {
        name: sum(c * tensors[name].double() for c, tensors in terms).to(a.dtype) if a.is_floating_point() else a
        for name, a in first.items()
    }
