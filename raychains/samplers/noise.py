"""A sampler's noise: seeded, exact on resume, the same for any number of threads, and fast on the CPU.

On the CPU it comes from `raychains.samplers.normals`, tensor by tensor in the order of the calls and within a tensor in
the order of its indices, whatever its memory format; double precision has a sequence of its own, and half precisions
are rounded from single. Every other device uses a torch.Generator of its own, so that draws on one device or in one
dtype never shift another's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from raychains.core.errors import UserError
from raychains.samplers.normals import DTYPES, Normals

SMALL = 4096
"""Numbers below which tensors are served by torch's calls, which cost less to start than threads and arrays."""


class Noise:
    """All noise of one seed: a sequence per dtype on the CPU, a generator per other device, each begun on first use."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._normals: dict[torch.dtype, Normals] = {}
        self._generators: dict[torch.device, torch.Generator] = {}
        self._saved: dict[str, Tensor] = {}
        """States of generators that nobody asked for yet, by device."""

    def __reduce__(self) -> Any:
        return Noise.load, (self.state(),)

    @classmethod
    def of_draws(cls, kind: str, seed: int, count: int) -> Noise:
        """Return the noise of a sampler's draws at one point of its path: to draw them twice gives the same, and moves
        nothing else."""
        text = f"{kind} draws {seed} {count}".encode()
        return cls(int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1)  # 63 bits, for torch's generators

    def like(self, p: Tensor) -> Tensor:
        """Return fresh standard normal numbers of ``p``'s shape, device and dtype, to be read and not altered."""
        dtype = p.dtype
        wide = dtype if dtype in DTYPES else torch.promote_types(dtype, torch.float32)
        if p.is_cpu:
            drawn = self.sequence(wide).draw(p)
        else:
            drawn = torch.empty_like(p, dtype=wide).normal_(generator=self.generator(p.device))
        return drawn if wide == dtype else drawn.to(dtype)

    def all_like(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return `like` of each tensor, in one call of its generator where they can be drawn together."""
        if len({(t.device, t.dtype) for t in tensors}) == 1 and not tensors[0].is_cpu and tensors[0].dtype in DTYPES:
            return together(tensors, self.generator(tensors[0].device))
        return [self.like(t) for t in tensors]

    def add(self, tensors: list[Tensor], std: float) -> None:
        """Add fresh noise of standard deviation ``std`` to each tensor in place, without a temporary of its size."""
        if _large(tensors) and _plain(tensors):
            self.sequence(tensors[0].dtype).add([t.detach().view(-1).numpy() for t in tensors], std)
        else:
            torch._foreach_add_(tensors, self.all_like(tensors), alpha=std)

    def fill(self, draws: Tensor) -> None:
        """Overwrite each of ``draws``, [n, numbers], a sampler's row in a pack, with what `like` of so many numbers
        gives next."""
        if draws.is_cpu:
            self.sequence(draws.dtype).fill(list(draws.numpy()))
            return
        for draw in draws:
            draw.normal_(generator=self.generator(draws.device))

    def seeds(self, lanes: int) -> list[int]:
        """Return the seed of each lane's noise."""
        return [self.seed] * lanes

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator of a device that is not the CPU: a saved one, also where the device had another
        number."""
        if device not in self._generators:
            made = torch.Generator(device).manual_seed(self.seed)
            names = [name for name in self._saved if torch.device(name).type == device.type]
            if names:
                name = str(device) if str(device) in names else names[0]
                made.set_state(self._saved.pop(name).to("cpu", torch.uint8))
            self._generators[device] = made
        return self._generators[device]

    def sequence(self, dtype: torch.dtype) -> Normals:
        """Return the CPU's sequence of a dtype."""
        if dtype not in self._normals:
            self._normals[dtype] = Normals(self.seed, dtype)
        return self._normals[dtype]

    def state(self) -> dict[str, Any]:
        """Return the JSON values and tensors that `load` continues from: how many numbers each sequence gave, and
        generators' states."""
        generators = dict(self._saved)
        for device, generator in self._generators.items():  # the number of one GPU is no part of a chain
            generators[device.type if device.type not in generators else str(device)] = generator.get_state()
        return {
            "seed": self.seed,
            "positions": {str(dtype).removeprefix("torch."): n.position for dtype, n in self._normals.items()},
            "generators": generators,
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> Noise:
        """Return noise that continues where `state` was taken, bit for bit.

        Raises:
            UserError: the state was saved by a version whose noise was another.
        """
        if "positions" not in state:
            raise UserError(
                "the sampler's state was saved by an older version, which drew other noise: it cannot be continued"
            )
        noise = cls(state["seed"])
        for name, position in state["positions"].items():
            noise._normals[getattr(torch, name)] = Normals(noise.seed, getattr(torch, name), position)
        noise._saved = dict(state["generators"])
        return noise


def together(tensors: list[Tensor], generator: torch.Generator) -> list[Tensor]:
    """Return noise for tensors of one device and dtype by one call of its generator: on a GPU every call waits for its
    turn.

    Each lies in memory as its tensor does (contiguous or channels_last), so that sums need no rearranging.
    """
    first, places = tensors[0], accumulate((t.numel() for t in tensors), initial=0)
    flat = torch.empty(sum(t.numel() for t in tensors), dtype=first.dtype, device=first.device)
    flat.normal_(generator=generator)
    return [
        flat.as_strided(t.shape, t.stride(), place)
        if t.is_contiguous() or (t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last))
        else flat[place : place + t.numel()].view(t.shape)
        for t, place in zip(tensors, places, strict=False)
    ]


def _large(tensors: Sequence[Tensor]) -> bool:
    left = SMALL
    for t in tensors:
        left -= t.numel()
        if left <= 0:
            return True
    return False


def _plain(tensors: Sequence[Tensor]) -> bool:
    """Return whether all lie on the CPU as plain arrays of one dtype that has a sequence."""
    dtype = tensors[0].dtype
    return dtype in DTYPES and all(t.is_cpu and t.dtype == dtype and t.is_contiguous() for t in tensors)
