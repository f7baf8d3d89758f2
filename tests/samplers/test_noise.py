"""Noise: its law against scipy's, one sequence whatever the threads and requests, and its state."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from raychains.samplers import SGHMC, normals
from raychains.samplers.noise import SMALL, Noise, together
from raychains.samplers.normals import Normals
from raychains.store.codec import decode, encode, flatten, unflatten
from tests.checks import refused

F32, F64 = torch.float32, torch.float64
COUNT = 1 << 20
"""Numbers that the laws are tested on; 5 standard errors are allowed everywhere."""


@pytest.fixture
def threads() -> Iterator[None]:
    """Leaves torch's number of threads as it was."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normals, "BLOCK", 64)


def numbers(count: int, dtype: torch.dtype = F32, seed: int = 0) -> Tensor:
    return Normals(seed, dtype).draw(torch.empty(count, dtype=dtype))


# --- the law ---


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_distribution_is_scipys_normal(dtype: torch.dtype) -> None:
    x = numbers(COUNT, dtype, seed=1).double().numpy()
    assert stats.kstest(x, "norm").pvalue > 1e-6
    edges = stats.norm.ppf(np.arange(1, 1024) / 1024)
    observed = np.bincount(np.searchsorted(edges, x), minlength=1024)
    assert stats.chisquare(observed).pvalue > 1e-6
    for half in np.split(x, 2 * COUNT // normals.BLOCK)[:2]:  # cosines and sines are made apart
        assert stats.kstest(half, "norm").pvalue > 1e-6


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_tails_beyond_four_deviations_hold_what_they_should(dtype: torch.dtype) -> None:
    """Counts on either side are Poisson's; at 5σ one or two of these four million are expected on each side."""
    x = numbers(4 * COUNT, dtype, seed=2)
    for bound in (4.0, 4.5, 5.0):
        expected = 4 * COUNT * stats.norm.sf(bound)
        for count in (int((x > bound).sum()), int((x < -bound).sum())):
            low, high = stats.poisson.interval(1 - 1e-6, expected)
            assert low <= count <= high, (bound, count, expected)
    beyond = x[x > 4].double().numpy()
    excess = (stats.norm.sf(beyond) / stats.norm.sf(4)).clip(0, 1)  # uniform, given that 4 is exceeded
    assert stats.kstest(excess, "uniform").pvalue > 1e-6


def correlation(x: Tensor, y: Tensor) -> float:
    """In standard errors under independence."""
    x, y = x.double(), y.double()
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).mean() / (x.std() * y.std())) * math.sqrt(len(x))


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_neighbours_lags_and_pairs_are_uncorrelated(dtype: torch.dtype) -> None:
    """In values, squares and magnitudes; half a block is the lag of two numbers made of one radius."""
    x = numbers(COUNT, dtype, seed=3)
    lags = [1, 2, 3, 4, 8, 64, 1024, normals.BLOCK // 2, normals.BLOCK, 2 * normals.BLOCK]
    for lag in lags:
        a, b = x[:-lag], x[lag:]
        for f in (Tensor.clone, Tensor.square, Tensor.abs):
            assert abs(correlation(f(a), f(b))) < 5, (lag, f)
        assert abs(correlation(a, b.square())) < 5, lag


def test_streams_of_seeds_and_dtypes_are_uncorrelated() -> None:
    count = COUNT // 4
    streams = [numbers(count, F32, s) for s in (0, 1, 2**40, 2**62 - 1)] + [numbers(count, F64, s) for s in (0, 1)]
    for i, a in enumerate(streams):
        for b in streams[:i]:
            for lag in (0, 1):
                assert abs(correlation(a[lag:], b[: count - lag])) < 5
                assert abs(correlation(a[lag:].square(), b[: count - lag].square())) < 5


class Bits:
    """In place of the random bits: one integer everywhere."""

    def __init__(self, value: int) -> None:
        self.value = value

    def random_raw(self, words: int) -> np.ndarray:
        return np.full(words, self.value, np.uint64)


@pytest.mark.parametrize(("dtype", "largest"), [(F32, 6.7637), (F64, 9.4926)], ids=str)
def test_the_rarest_bits_give_the_documented_largest_number(dtype: torch.dtype, largest: float) -> None:
    """Integers 0, of which the logarithm would be infinite, and the least ones, where the radius is 0."""
    maker = normals._Maker(0, dtype)
    block = np.empty(normals.BLOCK, normals.DTYPES[dtype])
    maker._bits = Bits(0)  # type: ignore[assignment]
    assert float(maker.make(0, block).max()) == pytest.approx(largest, abs=1e-4)
    maker._bits = Bits(2**63 + 2**31)  # type: ignore[assignment]
    assert float(np.abs(maker.make(1, block)).max()) < 1e-4
    maker._bits = Bits(2**64 - 1)  # type: ignore[assignment]
    assert bool(np.isfinite(maker.make(2, block)).all())


# --- one sequence ---


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_a_block_is_box_and_mullers_transform_of_its_stretch_of_the_bits(dtype: torch.dtype) -> None:
    """Against numpy in double precision, from a stream that never jumps."""
    size = 32 if dtype == F32 else 64
    bits = np.random.PCG64DXSM(np.random.SeedSequence(7, spawn_key=(size,)))
    got = numbers(3 * normals.BLOCK, dtype, seed=7).double().numpy()
    for block in np.split(got, 3):
        raw = bits.random_raw(normals.BLOCK * size // 64).view(f"i{size // 8}").astype(np.float64)
        u, phi = np.split(raw / 2.0 ** (size - 1), 2)
        radius = np.sqrt(-2 * np.log(np.abs(u)))
        expected = np.concatenate([radius * np.cos(np.pi * phi), radius * np.sin(np.pi * phi)])
        np.testing.assert_allclose(block, expected, rtol=0, atol=2e-4 if dtype == F32 else 1e-7)
        assert np.abs(block - expected).mean() < (1e-6 if dtype == F32 else 1e-14)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
def test_bytes_do_not_depend_on_the_number_of_threads(dtype: torch.dtype, threads: None) -> None:
    made = []
    for count in (1, 2, 3, 8):
        torch.set_num_threads(count)
        noise = Noise(5)
        p = torch.ones(9 * normals.BLOCK + 17, dtype=dtype)
        first = noise.like(p[:100])
        noise.add([p[:70_000], p[70_000:]], 0.3)
        made.append([first, p, noise.like(p), noise.like(p[:5])])
    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))


def test_requests_of_any_sizes_take_consecutive_numbers(small_blocks: None, threads: None) -> None:
    """Also across blocks, for shapes without elements, and for tensors that lie otherwise in memory."""
    whole = Normals(3, F32)
    expected = torch.cat([whole.draw(torch.empty(10)) for _ in range(800)])
    torch.set_num_threads(2)
    sequence, at = Normals(3, F32), 0
    sizes = "7 . 0 3,5 64 65 1 2,3,11 63 400 128 500"
    shapes = [torch.Size(int(n) for n in size.split(",") if n != ".") for size in sizes.split()]
    for shape in shapes:
        for p in (torch.empty(shape), torch.empty(shape[::-1]).permute(tuple(reversed(range(len(shape)))))):
            got = sequence.draw(p)
            assert got.shape == p.shape and torch.equal(got.reshape(-1), expected[at : at + p.numel()])
            at += p.numel()
        targets = [torch.full((n,), 2.0) for n in (0, 5, 0, *shape, 0)]
        sequence.add([t.numpy() for t in targets], 0.5)
        count = sum(len(t) for t in targets)
        assert torch.equal(torch.cat(targets), 2 + 0.5 * expected[at : at + count])
        at += count
        assert sequence.position == at
    assert at > 30 * 64


def test_numbers_once_given_stay_as_they_are(small_blocks: None) -> None:
    sequence = Normals(3, F64)
    given = [sequence.draw(torch.empty(n, dtype=F64)) for n in (5, 40, 30, 200, 1)]
    copies = [t.clone() for t in given]
    sequence.add([np.zeros(1000)], 1.0)
    sequence.draw(torch.empty(10, dtype=F64))
    assert all(torch.equal(a, b) for a, b in zip(given, copies, strict=True))


# --- tensors ---


def test_adding_is_the_same_noise_in_place_large_or_small() -> None:
    for sizes in ((3, 4), (SMALL, 70_000, 1)):
        one, other = Noise(2), Noise(2)
        tensors = [torch.ones(n) for n in sizes]
        one.add(tensors, 0.25)
        for t in tensors:
            torch.testing.assert_close(t, 1 + 0.25 * other.like(t), rtol=0, atol=2e-7)


def test_half_precision_is_rounded_from_single_and_other_dtypes_move_nothing() -> None:
    like = torch.empty(50)
    expected = Noise(4).like(torch.empty(100))
    noise = Noise(4)
    assert torch.equal(noise.like(like.bfloat16()), expected[:50].bfloat16())
    doubles = noise.like(like.double())
    assert torch.equal(noise.like(like.half()), expected[50:].half())
    assert not torch.equal(doubles.float(), doubles.double()) and abs(correlation(doubles, expected[:50])) < 5
    target = torch.zeros(50, dtype=torch.bfloat16)
    Noise(4).add([target, torch.zeros(50)], 0.5)
    assert torch.equal(target, (0.5 * expected[:50]).bfloat16())


def test_a_gpus_noise_is_one_draw_that_lies_as_its_tensors_do() -> None:
    """On the CPU's own generator, since there may be no GPU."""
    channels = torch.zeros(4, 3, 5, 2).to(memory_format=torch.channels_last)
    tensors = [torch.zeros(3, 7), channels, torch.zeros(()), torch.zeros(6, 2).t(), torch.zeros(0)]
    drawn = together(tensors, torch.Generator().manual_seed(4))
    assert all(d.shape == t.shape for d, t in zip(drawn, tensors, strict=True))
    assert drawn[1].stride() == channels.stride()
    whole = torch.empty(21 + 120 + 1 + 12).normal_(generator=torch.Generator().manual_seed(4))
    in_memory = [drawn[0], drawn[1].permute(0, 2, 3, 1), drawn[2], drawn[3]]
    assert torch.equal(torch.cat([d.reshape(-1) for d in in_memory]), whole)


def test_memory_format_does_not_change_a_tensors_noise() -> None:
    shape = (8, 16, 9, 7)
    plain, channels = torch.zeros(shape), torch.zeros(shape).to(memory_format=torch.channels_last)
    Noise(1).add([plain], 1.0)
    Noise(1).add([channels], 1.0)
    torch.testing.assert_close(plain, channels, rtol=0, atol=0)
    assert float(plain.abs().min()) > 0


# --- state ---


def test_the_state_continues_bit_for_bit_from_anywhere() -> None:
    for before in (0, 1, 100, normals.BLOCK, normals.BLOCK + 1, 200_000):
        noise = Noise(6)
        if before:
            noise.like(torch.empty(before))
        noise.like(torch.empty(3, dtype=F64))
        noise.generator(torch.device("cpu")).manual_seed(8)  # as another device's would be kept
        tensors, tree = flatten(noise.state())
        loaded, description = decode(encode(tensors, json.loads(json.dumps({"state": tree}))))
        again = Noise.load(unflatten(loaded, description["state"]))
        for p in (torch.empty(40), torch.empty(40, dtype=F64), torch.empty(50_000)):
            assert torch.equal(noise.like(p), again.like(p))
        a, b = (torch.empty(9).normal_(generator=n.generator(torch.device("cpu"))) for n in (noise, again))
        assert torch.equal(a, b)


def test_a_gpus_noise_goes_on_where_the_gpu_has_another_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chain's ranks on one node each has its own; states of earlier versions name it."""
    real = torch.Generator
    monkeypatch.setattr(torch, "Generator", lambda device=None: real())
    noise = Noise(3)
    torch.empty(5).normal_(generator=noise.generator(torch.device("cuda:1")))
    state = noise.state()
    other = Noise(3)
    torch.empty(5).normal_(generator=other.generator(torch.device("cuda:0")))
    assert list(state["generators"]) == list(other.state()["generators"]) == ["cuda"]
    expected = torch.empty(5).normal_(generator=noise.generator(torch.device("cuda:1")))
    for saved in (state, {**state, "generators": {"cuda:1": state["generators"]["cuda"]}}):
        loaded = Noise.load(saved)
        assert loaded.state()["generators"] == saved["generators"]
        found = torch.empty(5).normal_(generator=loaded.generator(torch.device("cuda:0")))
        assert torch.equal(found, expected) and list(loaded.state()["generators"]) == ["cuda"]


def test_a_state_of_another_noise_is_refused_in_one_line() -> None:
    sampler = SGHMC([torch.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9, num_data=3, seed=0)
    state = sampler.state_dict()
    del state["sampler"]["positions"]
    with refused("state", "older version"):
        sampler.load_state_dict(state)
