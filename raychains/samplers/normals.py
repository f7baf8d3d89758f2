"""An endless sequence of standard normal numbers on the CPU, any block of which any thread can make at any time.

Numbers come in blocks of `BLOCK`. A block is Box and Muller's transform of its own stretch of one PCG64DXSM stream, to
which a thread jumps in half a microsecond. So the sequence is a function of the seed alone, its place in it is one
integer, and as many threads as there are can fill a large tensor without changing a byte of it.

A pair of integers k, l of 32 bits (64 in double precision) gives u = |k|/2³¹ and φ = πl/2³¹, and √(−2·log u)·(cos φ,
sin φ) two numbers of the block, half a block apart. The radius has the resolution of u, 2⁻³¹, and ends at 6.76, which a
pair exceeds with probability 1.2·10⁻¹⁰ (2⁻⁶³ and 9.49 in double precision); torch's own ends at 5.77 in single
precision. Radii below 2.4·10⁻⁴, of which single precision has one in 34 million pairs (1.1·10⁻⁸, 2·10¹⁶ in double), are
0.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

BLOCK = 32768
"""Numbers of one block: what is at work at a time (half a megabyte in single precision) stays in a core's cache."""
_BLOCKS_PER_THREAD = 2
"""Fewer are made sooner than another thread wakes up."""
DTYPES: dict[torch.dtype, type[np.floating[Any]]] = {torch.float32: np.float32, torch.float64: np.float64}


class Normals:
    """The sequence of one seed and dtype, and a place in it.

    Args:
        seed: any integer; of it the lowest 64 bits count. Another seed or dtype is another stream.
        dtype: `torch.float32` or `torch.float64`.
        position: how many numbers were taken already.
    """

    def __init__(self, seed: int, dtype: torch.dtype, position: int = 0) -> None:
        self.position = position
        self._seed, self._dtype = seed, dtype
        self._makers: list[_Maker] = []
        self._kept = torch.empty(0, dtype=dtype)
        """The block that was made last, from which small tensors are views: it is replaced, never altered."""
        self._kept_from = -BLOCK
        """Its first number's place in the sequence."""

    def draw(self, p: Tensor) -> Tensor:
        """The next numbers as a contiguous tensor of ``p``'s shape, to be read and not altered."""
        count, begin = p.numel(), self.position - self._kept_from
        if begin + count <= BLOCK and p.is_contiguous():
            self.position += count
            return self._kept.as_strided(p.shape, p.stride(), begin)  # one call: what is small is drawn often
        drawn = torch.empty(p.shape, dtype=self._dtype)
        self.fill([drawn.view(-1).numpy()])
        return drawn

    def fill(self, targets: Sequence[Array]) -> None:
        """Overwrite 1-D arrays of this dtype with the next numbers, in their order."""
        *starts, count = accumulate((len(t) for t in targets), initial=0)

        def use(begin: int, numbers: Array, spare: Array) -> None:
            for target, part in _pieces(targets, starts, begin, numbers):
                target[:] = part

        self._pass_on(count, use)

    def add(self, targets: Sequence[Array], scale: float) -> None:
        """Add the next numbers times ``scale`` to 1-D arrays of this dtype, in their order."""
        *starts, count = accumulate((len(t) for t in targets), initial=0)

        def use(begin: int, numbers: Array, spare: Array) -> None:
            numbers = np.multiply(numbers, scale, out=spare[: len(numbers)])
            for target, part in _pieces(targets, starts, begin, numbers):
                target += part

        self._pass_on(count, use)

    def _pass_on(self, count: int, use: Callable[[int, Array, Array], None]) -> None:
        """Give the next ``count`` numbers to ``use`` piece by piece, from several threads where there are many.

        ``use`` gets a piece's place among the ``count``, the piece, which must stay as it is, and a block to work in.
        """
        if count == 0:
            return
        begin, end = self.position, self.position + count
        first, last = begin // BLOCK, (end - 1) // BLOCK
        kept_at, kept = self._kept_from // BLOCK, self._kept
        threads = max(1, min(torch.get_num_threads(), (last - first + 1) // _BLOCKS_PER_THREAD))
        while len(self._makers) < threads:
            self._makers.append(_Maker(self._seed, self._dtype))

        def work(thread: int) -> None:
            maker = self._makers[thread]
            share = -(-(last - first + 1) // threads)
            for index in range(first + thread * share, min(first + (thread + 1) * share, last + 1)):
                if index == kept_at:
                    numbers = kept.numpy()
                elif index == last:
                    made = torch.empty(BLOCK, dtype=self._dtype)
                    numbers = maker.make(index, made.numpy())
                    self._kept, self._kept_from = made, index * BLOCK
                else:
                    numbers = maker.make(index, maker.block)
                low, high = max(begin, index * BLOCK), min(end, (index + 1) * BLOCK)
                use(low - begin, numbers[low - index * BLOCK : high - index * BLOCK], maker.spare)

        others = [_helpers(threads).submit(work, thread) for thread in range(1, threads)]
        work(0)
        for other in others:
            other.result()
        self.position = end


def _pieces(
    targets: Sequence[Array], starts: Sequence[int], begin: int, numbers: Array
) -> Iterator[tuple[Array, Array]]:
    """Yield the parts of the arrays, which lie one after another at ``starts``, from ``begin`` on, each with its
    numbers."""
    which = bisect_right(starts, begin) - 1
    while len(numbers):
        target = targets[which][begin - starts[which] :][: len(numbers)]
        yield target, numbers[: len(target)]
        begin, numbers, which = begin + len(target), numbers[len(target) :], which + 1


class _Maker:
    """Makes blocks of one sequence in scratch memory of its own; one per thread."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        real = DTYPES[dtype]
        size = np.dtype(real).itemsize
        self._bits = np.random.PCG64DXSM(np.random.SeedSequence(seed % 2**64, spawn_key=(8 * size,)))
        self._words = BLOCK * size // 8
        self._next = 0
        self._integer = np.int32 if size == 4 else np.int64
        self._unit = 2.0 ** (1 - 8 * size)
        self._radius = np.empty(BLOCK // 2, real)
        self.spare = np.empty(BLOCK, real)
        self.block = np.empty(BLOCK, real)

    def make(self, index: int, block: Array) -> Array:
        """Write block number ``index`` into ``block`` and return it."""
        if index != self._next:
            self._bits.advance((index - self._next) * self._words % 2**128)
        self._next = index + 1
        half = BLOCK // 2
        u, angle, radius = self.spare[:half], self.spare[half:], self._radius
        self.spare[:] = self._bits.random_raw(self._words).view(self._integer)
        np.multiply(u, self._unit, out=u)
        np.multiply(u, u, out=radius)
        np.add(radius, self._unit**2 / 16, out=radius)  # u = 0 counts as 2⁻³³: the logarithm stays finite
        np.log(radius, out=radius)
        np.negative(radius, out=radius)
        np.sqrt(radius, out=radius)
        np.multiply(angle, math.pi * self._unit, out=angle)
        np.multiply(np.cos(angle, out=u), radius, out=block[:half])
        np.multiply(np.sin(angle, out=angle), radius, out=block[half:])
        return block


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    """The threads beside the caller's own that fill large tensors."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="noise")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.cache_clear)  # a forked process has none of these threads
