"""PosteriorPredictive: the samples of a posterior as one `torch.nn.Module`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from raychains.deploy import preparation, stacks
from raychains.deploy.memory import Counted, budget
from raychains.deploy.reduce import Classified, Regressed, classify, regress
from raychains.errors import UserError, require
from raychains.evaluation.regression import LOG_NOISE
from raychains.schedules.base import is_number

log = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.RLock()
"""`functional_call` puts tensors into the network and takes them out again: two threads would mix their samples."""


class PosteriorPredictive(nn.Module):
    """The equally weighted (or weighted) average over samples of a posterior, p(y | x) = Σ_s w_s p(y | x, θ_s).

    ``forward(x)`` takes inputs [n, …] and gives `Classified` (probabilities, entropy, expected entropy, mutual
    information) or `Regressed` (mean, variance, aleatoric, epistemic). Samples are stacked on axis 0 of buffers and run several at a time by `torch.func.vmap` where that pays
    and memory allows, else one after another; the result is the same up to rounding. `to`, `half`, autocast, `no_grad`
    and `state_dict` work as for any module; dropout is off and BatchNorm uses each sample's own statistics, also after
    ``train()``. Gradients with respect to the input flow unless switched off: wrap calls in `torch.inference_mode`.

    Args:
        model: the network; kept in evaluation mode, its own parameters are not used.
        samples: state dicts, one per sample, read once each in turn; or one dict of their tensors stacked, [S, …].
        shared: tensors that all samples have in common and lack therefore (last-layer inference): layers that need only
            these run once for all samples.
        weights: w_s ≥ 0 per sample; default equal. They are divided by their sum.
        prepare: what is done to uint8 images, ``{"kind": "normalise", "mean": […], "std": […]}`` per channel on the scale
            [0, 1]; floating inputs are taken as prepared already. Default nothing.
        kind: classification, where the network gives logits [n, …, classes]; or regression, where it gives means [n] or
            [n, outputs] under Gaussian noise.
        noise: σ of a regression; None where each sample has its own, ``log_noise`` = log σ.
        chunk: samples run at a time; 1 is sequential, "auto" measures the network's activations and takes as many as a
            small part of the memory holds (on a CPU: as the cache does). One that does not fit is made smaller.

    Raises:
        UserError: samples that do not fit the network, or a setting out of range.
    """

    weights: Tensor
    log_noise: Tensor | None
    chunk: int | Literal["auto"]

    def __init__(
        self,
        model: nn.Module,
        samples: Collection[Mapping[str, Tensor]] | Mapping[str, Tensor],
        *,
        shared: Mapping[str, Tensor] | None = None,
        weights: Sequence[float] | None = None,
        prepare: Mapping[str, Any] | None = None,
        kind: str = "classification",
        noise: float | None = None,
        chunk: int | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        require(kind in ("classification", "regression"), "kind", kind, "be classification or regression")
        ok = noise is None or (kind == "regression" and is_number(noise) and noise > 0)
        require(ok, "noise", noise, "be the positive σ of a regression, or None")
        ok = chunk == "auto" or (isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1)
        require(ok, "chunk", chunk, "be 'auto' or an integer of at least 1: how many samples run at a time")
        self.kind, self.prepare, self.chunk = kind, preparation.check(prepare), chunk
        learned = [LOG_NOISE] if kind == "regression" and noise is None else []
        wanted = [n for n in stacks.names(model) if n not in learned]  # a network without it will do
        common = {n: shared[n] for n in (*wanted, *learned) if n in shared} if shared else {}
        own = [n for n in wanted if n not in common]
        mine = [n for n in (*own, *learned) if n not in common]
        stacked = dict(samples) if isinstance(samples, Mapping) else stacks.stack(samples, mine)
        sigmas = [t.pop(LOG_NOISE) for t in (common, stacked) if learned and LOG_NOISE in t]
        size = stacks.check(wanted, model, stacked, common)
        self.samples, self.shared = stacks.held({n: stacked[n] for n in own}), stacks.held(common)
        self._constants = stacks.held(stacks.constants(model), persistent=False)
        self.register_buffer("weights", _weights(weights, size))
        self.noise = noise
        self.register_buffer("log_noise", _log_noise(sigmas, size) if learned else None)
        self._network = (model.eval(),)  # not a submodule: its parameters would be part of this module's own
        self._vmaps = True
        self._bytes: dict[Any, float] = {}
        """Activations per example of one sample, by what the inputs are like."""
        self._rows: int | None = None
        """Examples × samples that fit the device's memory, once something did not."""

    @classmethod
    def load(
        cls,
        file: str | Path,
        model: nn.Module | None = None,
        *,
        device: str | torch.device = "cpu",
        trust: bool = False,
        chunk: int | Literal["auto"] = "auto",
    ) -> PosteriorPredictive:
        """The ensemble in a file of `raychains export`; needs neither the task's data nor a store nor Ray.

        Args:
            file: the file.
            model: the network, where the file does not name one of `raychains.models`.
            device: where its tensors go.
            trust: import the network that the file names by its path, which runs that module's code.
            chunk: as above.

        Raises:
            UserError: no such file, a torn, altered or newer one, or one whose network cannot be built.
        """
        from raychains.deploy import file as files
        from raychains.deploy.networks import rebuild

        about = files.describe(file)
        network = model if model is not None else rebuild(about.get("network"), str(file), trust)
        stacked, shared = files.tensors(file, about, device)
        made = cls(
            network, stacked, shared=shared, weights=about.get("weights"), prepare=about.get("preparation"),
            kind=about.get("kind", "classification"), noise=about.get("noise"), chunk=chunk,
        )  # fmt: skip
        return made.to(device)

    def __len__(self) -> int:
        """How many samples are averaged."""
        return len(self.weights)

    def __repr__(self) -> str:
        return f"PosteriorPredictive({len(self)} samples of {type(self._network[0]).__name__}, {self.kind})"

    def forward(self, x: Tensor) -> Classified | Regressed:
        """The posterior predictive of inputs ``x`` [n, …] on this module's device."""
        network = self._network[0]
        samples, shared = dict(self.samples.named_buffers()), dict(self.shared.named_buffers())
        shared |= dict(self._constants.named_buffers())
        dtype = next((t.dtype for t in (*samples.values(), *shared.values()) if t.is_floating_point()), torch.float32)
        x = preparation.prepare(x, self.prepare, dtype)
        with _ONE_AT_A_TIME:
            network.eval()  # whoever holds the network may have set it to training
            outputs = self._outputs(_Runner(network, samples, shared), x)
            return classify(outputs) if self.kind == "classification" else regress(outputs, self._variance())

    def _shares(self) -> Tensor:
        """w_s, which add up to 1."""
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        return weights / weights.sum()

    def _variance(self) -> Tensor:
        """The noise's average variance Σ_s w_s σ_s²."""
        shares = self._shares()
        if self.log_noise is None:
            return torch.tensor(float(self.noise or 0) ** 2, device=shares.device)
        return (shares * (2 * self.log_noise.to(shares.dtype)).exp()).sum()

    def _outputs(self, run: _Runner, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of (weights [k], outputs [k, n, …]) until all samples had their turn."""
        weights = self._shares()
        done, size = 0, len(weights)
        like = (x.shape[1:], x.dtype, x.device, torch.is_grad_enabled())
        if self.chunk == "auto" and like not in self._bytes:
            with Counted() as counted:
                outputs = run.one(0, x)[None]
            self._bytes[like] = counted.bytes / max(len(x), 1)
            yield weights[:1], outputs
            done = 1
        while done < size:
            k = min(self._at_once(run, x, like), size - done)
            found: Tensor | None = None
            try:
                found = self._several(run, done, k, x)
            except torch.OutOfMemoryError:
                if k == 1:
                    raise
            if found is None:  # outside: the error holds on to what filled the memory
                self._rows = max(k // 2, 1) * len(x)
                if x.device.type == "cuda":
                    torch.cuda.empty_cache()
                continue
            yield weights[done : done + k], found
            done += k

    def _at_once(self, run: _Runner, x: Tensor, like: Any) -> int:
        """How many samples to run at a time."""
        if not self._vmaps:
            return 1
        if self.chunk == "auto":
            k = budget(x.device) // (self._bytes[like] * len(x) + run.bytes_per_sample(x.device))
        else:
            k = self.chunk
        if self._rows is not None:
            k = min(k, self._rows // max(len(x), 1))
        return max(int(k), 1)

    def _several(self, run: _Runner, start: int, k: int, x: Tensor) -> Tensor:
        """Outputs [k, n, …] of samples ``start`` … ``start + k − 1``."""
        if k == 1:
            return run.one(start, x)[None]
        try:
            return run.vmapped(start, k, x)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever vmap cannot do, each with an error of its own class
            outputs = torch.stack([run.one(s, x) for s in range(start, start + k)])  # wrong inputs fail here as well
            self._vmaps = False
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            log.warning("samples run one after another: torch.func.vmap cannot run this network (%s)", reason)
            return outputs


class _Runner:
    """Runs a network under samples by number."""

    def __init__(self, network: nn.Module, samples: Mapping[str, Tensor], shared: Mapping[str, Tensor]) -> None:
        self._network, self._samples, self._shared = network, samples, shared

    def _call(self, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        out = functional_call(self._network, {**self._shared, **tensors}, (x,))
        if not isinstance(out, Tensor):
            raise UserError(f"model must give one tensor of logits, [n, …, classes], got {type(out).__name__}")
        return out

    def one(self, s: int, x: Tensor) -> Tensor:
        """Outputs [n, …] of one sample."""
        return self._call({name: t[s] for name, t in self._samples.items()}, x)

    def vmapped(self, start: int, k: int, x: Tensor) -> Tensor:
        """Outputs [k, n, …] of k samples at once."""
        part = {name: t[start : start + k] for name, t in self._samples.items()}
        return vmap(lambda tensors: self._call(tensors, x), randomness="different")(part)

    def bytes_per_sample(self, device: torch.device) -> int:
        """Memory that copies of a sample's own tensors may take; none worth counting where the cache is the limit."""
        if device.type == "cpu":
            return 0
        return sum(t[0].numel() * t.element_size() for t in self._samples.values())


def _log_noise(found: Sequence[Tensor], size: int) -> Tensor:
    """log σ of every sample, [S]."""
    if not found or found[0].numel() not in (1, size):
        raise UserError(f"samples must hold {LOG_NOISE!r}, log σ, or the regression have its noise: one number each")
    return found[0].reshape(-1).expand(size).clone()


def _weights(given: Sequence[float] | None, size: int) -> Tensor:
    if given is None:
        return torch.ones(size)
    values = given.tolist() if hasattr(given, "tolist") else given
    ok = isinstance(values, list | tuple) and len(values) == size
    ok = ok and all(is_number(w) and w >= 0 for w in values) and 0 < sum(values) < float("inf")
    require(ok, "weights", given, f"be {size} numbers of at least 0, not all 0: one per sample")
    return torch.tensor(values, dtype=torch.float32)
