"""PosteriorPredictive: the samples of a posterior as one `torch.nn.Module`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from raychains.core import gpus, tree
from raychains.core.errors import UserError, format_error, require, shown
from raychains.core.tree import Tree
from raychains.core.validation import is_int, is_number, one_of, path_of, true_or_false
from raychains.data.augment import normalise
from raychains.data.source import check_plain, device_of, without_labels
from raychains.evaluation.regression import LOG_NOISE, OutputNoise
from raychains.inference import networks

CACHE = 4 << 20
"""Bytes of activations on a CPU that vmap takes on at once: with more, samples one by one are faster (measured)."""
SHARE = 0.5
"""Share of a GPU's free memory."""
OTHER_DEVICES = 256 << 20
"""Bytes on other devices, which do not report free memory."""


def budget(device: torch.device) -> float:
    """Return the bytes of activations that samples may take together."""
    if device.type == "cpu":
        return CACHE
    return SHARE * gpus.free_memory(device) if gpus.is_gpu(device) else OTHER_DEVICES


class Counted(TorchFunctionMode):
    """Sums the bytes of the tensors that torch's functions make in its body, views left out: at least the peak.

    A dispatch mode would see more, and import torch's compiler: ten seconds before the first prediction (measured).
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        made = list(_tensors(out))
        if made:
            inputs = {t.untyped_storage().data_ptr() for t in _tensors([*args, *kwargs.values()])}
            fresh = [t for t in made if t.untyped_storage().data_ptr() not in inputs]
            self.bytes += sum(t.numel() * t.element_size() for t in fresh)
        return out


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def check_preparation(preparation: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return ``preparation``; raise `UserError` for one that `prepare_inputs` does not know."""
    if preparation is None:
        return None
    ok = isinstance(preparation, Mapping) and preparation.get("kind") == "normalise"
    for field in ("mean", "std"):
        values = preparation.get(field) if ok else None
        ok = ok and isinstance(values, list | tuple) and bool(values) and all(is_number(v) for v in values)
    if not ok or len(preparation["mean"]) != len(preparation["std"]) or not all(s > 0 for s in preparation["std"]):
        raise UserError(
            "prepare must be None or {'kind': 'normalise', 'mean': […], 'std': […]}, a number per channel each, "
            f"got {shown(preparation)}"
        )
    return {"kind": "normalise", "mean": list(preparation["mean"]), "std": list(preparation["std"])}


def prepare_inputs(x: Tensor, preparation: Mapping[str, Any] | None, dtype: torch.dtype) -> Tensor:
    """Return the network's inputs for ``x`` [n, …].

    With a preparation uint8 images [n, c, h, w] become (x/255 − mean)/std, in float32 at least. Floating inputs are
    taken as prepared already. Those that are floating then have ``dtype``, the network's; others, such as token
    numbers, stay.
    """
    if preparation is not None and x.dtype == torch.uint8:
        channels = len(preparation["mean"])
        if x.ndim != 4 or x.shape[1] != channels:
            raise UserError(
                f"uint8 inputs must be images of {channels} channel{'s' * (channels != 1)}, [n, {channels}, height, "
                f"width], got {list(x.shape)}"
            )
        return normalise(x, preparation["mean"], preparation["std"], dtype)
    return x.to(dtype) if x.is_floating_point() else x


SOFTPLUS = "softplus"
"""Kind of an `OutputNoise` in an exported file."""


class Classified(NamedTuple):
    """A classifier's posterior predictive; at least float32. Entropies are in nats."""

    probabilities: Tensor
    """p̄ = Σ_s w_s p(y | x, θ_s), [n, …, classes]."""
    entropy: Tensor
    """H[p̄], the whole uncertainty, [n, …]."""
    expected_entropy: Tensor
    """Σ_s w_s H[p(y | x, θ_s)], the uncertainty under a known θ (aleatoric), [n, …]."""
    mutual_information: Tensor
    """I[y; θ] = entropy − expected_entropy ≥ 0, the samples' disagreement (epistemic), [n, …]."""


def classify(outputs: Iterable[tuple[Tensor, Tensor]]) -> Classified:
    """Return the predictive of chunks of (weights [k], logits [k, n, …, classes]) whose weights add up to 1.

    Source: Depeweg et al. 2018, Eqs. 5–6, for the split.
    """
    mean: Tensor | float = 0.0
    expected: Tensor | float = 0.0
    for weights, logits in outputs:
        p = torch.softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
        w = weights.to(p.dtype).view(-1, *[1] * (p.ndim - 1))
        mean = mean + (w * p).sum(0)  # no matrix product: autocast would take it in half precision
        expected = expected + (w[..., 0] * torch.special.entr(p).sum(-1)).sum(0)
    assert isinstance(mean, Tensor) and isinstance(expected, Tensor)
    entropy = torch.special.entr(mean).sum(-1)
    return Classified(mean, entropy, expected, (entropy - expected).clamp_min(0))  # rounding may fall below 0


class Regressed(NamedTuple):
    """A regression's posterior predictive, a mixture of Gaussians by its first two moments; at least float32."""

    mean: Tensor
    """Σ_s w_s μ_s(x), [n, outputs]."""
    variance: Tensor
    """Variance of the mixture: aleatoric + epistemic, [n, outputs], in the square of the target's unit."""
    aleatoric: Tensor
    """Σ_s w_s σ_s²(x), the noise's variance, [n, outputs]."""
    epistemic: Tensor
    """Σ_s w_s (μ_s(x) − mean)², the variance of the means over the samples, [n, outputs]."""


def regress(outputs: Iterable[tuple[Tensor, Tensor, Tensor]]) -> Regressed:
    """Return the predictive of chunks of (weights [k], means μ_s [k, n, outputs], noises σ_s [k, n or 1, 1])."""
    shift: Tensor | None = None
    first: Tensor | float = 0.0
    second: Tensor | float = 0.0
    noise: Tensor | float = 0.0
    for weights, means, sigmas in outputs:
        shift = means[0] if shift is None else shift  # squares of small differences: large means would cancel
        w = weights.to(means.dtype).view(-1, 1, 1)
        first = first + (w * (means - shift)).sum(0)
        second = second + (w * (means - shift).square()).sum(0)
        noise = noise + (w * sigmas.to(means.dtype).square()).sum(0)
    assert isinstance(shift, Tensor) and isinstance(first, Tensor) and isinstance(second, Tensor)
    assert isinstance(noise, Tensor)
    epistemic = (second - first.square()).clamp_min(0)
    aleatoric = noise.expand_as(epistemic)
    return Regressed(shift + first, aleatoric + epistemic, aleatoric, epistemic)


def noise_of(noise: Any) -> float | OutputNoise | None:
    """Return a regression's noise from what a user or a file states: σ, an `OutputNoise` or its JSON, or None.

    Raises:
        UserError: none of these.
    """
    if isinstance(noise, Mapping) and noise.get("kind") == SOFTPLUS and set(noise) == {"kind", "floor"}:
        floor = noise["floor"]
        noise = OutputNoise(floor=floor) if is_number(floor) and floor >= 0 else noise
    ok = noise is None or isinstance(noise, OutputNoise) or (is_number(noise) and noise > 0)
    require(ok, "noise", noise, "be the positive σ of a regression, an OutputNoise, or None")
    return noise


def noise_to_json(noise: float | OutputNoise | None) -> Any:
    """Return a regression's noise as a file states it."""
    return {"kind": SOFTPLUS, "floor": noise.floor} if isinstance(noise, OutputNoise) else noise


def likelihood_of(given: Any, kind: str, file: str = "the file", trust: bool = False) -> Any:
    """Return the likelihood of an ensemble's kind, from an object or a file's JSON; with ``trust`` its class may be
    imported.

    Raises:
        UserError: one of another kind of ensemble, or one that cannot be made here.
    """
    if kind != "distribution":
        require(given is None, "likelihood", given, "be left out: only kind distribution has it")
        return None
    from raychains.tasks.likelihoods import Distributed, distributed_from_json  # what other ensembles do without

    return given if isinstance(given, Distributed) else distributed_from_json(given, file, trust)


log = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.RLock()
"""`functional_call` puts tensors into the network and takes them out again: two threads would mix their samples."""


class PosteriorPredictive(nn.Module):
    """The equally weighted (or weighted) average over samples of a posterior, p(y | x) = Σ_s w_s p(y | x, θ_s).

    ``forward(x)`` takes inputs [n, …] and gives `Classified` (probabilities, entropy, expected entropy, mutual
    information) or `Regressed` (mean, variance, aleatoric, epistemic; also of a distribution). Samples are stacked on
    axis 0 of buffers and run several at a time by `torch.func.vmap` where that pays and memory allows, else one after
    another; the result is the same up to rounding. `to`, `half`, autocast, `no_grad` and `state_dict` work as for any
    module; dropout is off and BatchNorm uses each sample's own statistics, also after ``train()``. Gradients with
    respect to the input flow unless switched off: wrap calls in `torch.inference_mode`.

    Args:
        model: the network; kept in evaluation mode, its own parameters are not used.
        samples: state dicts, one per sample, read once each in turn; or one dict of their tensors stacked, [S, …].
        shared: tensors that all samples have in common and lack therefore (last-layer inference): layers that need only
            these run once for all samples.
        weights: w_s ≥ 0 per sample; default equal. They are divided by their sum.
        prepare: what is done to uint8 images, ``{"kind": "normalise", "mean": […], "std": […]}`` per channel on the
            scale [0, 1]; floating inputs are taken as prepared already. Default nothing.
        kind: classification, where the network gives logits [n, …, classes], or with ``class_axis=1`` [n, classes, …],
            as of pixels; regression, where it gives means [n] or
            [n, outputs] under Gaussian noise; or distribution, where the ``likelihood`` says what its outputs mean.
        output: what is taken of what the network returns, where that is no tensor: a name or a position; default
            ``logits``.
        likelihood: a `raychains.tasks.likelihoods.Distributed`, or how a file states one of raychains'.
        noise: σ of a regression; an `OutputNoise` of a network with the two outputs of the likelihood
            ``heteroscedastic``; None where each sample has its own, ``log_noise`` = log σ.
        class_axis: of the classes among a classification's logits; those of `outputs` and all probabilities have them
            last.
        chunk: samples run at a time; 1 is sequential, "auto" measures the network's activations and takes as many as a
            small part of the memory holds (on a CPU: as the cache does). One that does not fit is made smaller. In
            `torch.export`, which knows neither memory nor batch, "auto" is 1.

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
        noise: float | OutputNoise | Mapping[str, Any] | None = None,
        likelihood: Any = None,
        output: str | int | None = None,
        class_axis: int = -1,
        chunk: int | Literal["auto"] = "auto",
    ) -> None:
        super().__init__()
        require(isinstance(model, nn.Module), "model", model, "be a torch.nn.Module")
        networks.check_tensors(samples, shared)
        one_of("kind", kind, ("classification", "regression", "distribution"))
        self.likelihood = likelihood_of(likelihood, kind)
        ok = class_axis == -1 or (kind == "classification" and is_int(class_axis) and class_axis >= 1)
        require(
            ok, "class_axis", class_axis, "be -1 or, for a classification, the axis of the classes among the logits'"
        )
        self.class_axis = class_axis
        require(noise is None or kind == "regression", "noise", noise, "be left out: only a regression has it")
        noise = noise_of(noise)
        ok = (isinstance(chunk, str) and chunk == "auto") or (is_int(chunk) and chunk >= 1)
        require(ok, "chunk", chunk, "be 'auto' or an integer of at least 1: how many samples run at a time")
        ok = isinstance(output, str | None) or is_int(output)
        require(ok, "output", output, "be a name or a position in what the network returns")
        self.kind, self.prepare, self.chunk, self.output = kind, check_preparation(prepare), chunk, output
        learned = [LOG_NOISE] if kind == "regression" and noise is None else []
        own, common, size, log_noise = _tensors_of(model, samples, shared or {}, learned)
        self.samples, self.shared = networks.held(own), networks.held(common)
        self._constants = networks.held(networks.constants(model), persistent=False)
        self.register_buffer("weights", _weights(weights, size))
        self.noise = noise
        self.register_buffer("log_noise", log_noise)
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
        likelihood: Any = None,
    ) -> PosteriorPredictive:
        """Return the ensemble in a file of `raychains export`; needs neither the task's data nor a store nor Ray.

        Args:
            file: the file.
            model: the network, where the file does not name one of `raychains.models`.
            device: where its tensors go.
            trust: import the network and the likelihood that the file names by their paths, which runs those modules'
                code.
            chunk: as above.
            likelihood: a `raychains.tasks.likelihoods.Distributed` instead of the file's.

        Raises:
            UserError: no such file, a torn, altered or newer one, or one whose network or likelihood cannot be built.
        """
        from raychains.inference import file as files

        true_or_false("trust", trust)
        file = path_of("file", file)
        require(model is None or isinstance(model, nn.Module), "model", model, "be a torch.nn.Module")
        where = device_of(device)
        about = files.describe(file)
        network = model if model is not None else networks.rebuild(about.get("network"), str(file), trust)
        stacked, shared = files.tensors(file, about, where)
        settings: dict[str, Any] = {
            "weights": about.get("weights"),
            "noise": about.get("noise"),
            "prepare": about.get("preparation"),
            "output": about.get("output"),
            "class_axis": about.get("class_axis", -1),
        }
        kind = about.get("kind", "classification")
        stated = about.get("likelihood")
        if likelihood is not None:
            name, stated = getattr(likelihood, "name", None), likelihood
            of_file = about.get("loss", name)
            require(name == of_file, "likelihood", name, f"be that of {file}, {of_file!r}")
        settings["likelihood"] = likelihood_of(stated, kind, str(file), trust)
        return cls(network, stacked, shared=shared, kind=kind, chunk=chunk, **settings).to(where)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As torch's, which `to` calls; complex tensors are only moved: a cast would drop their imaginary part."""

        def kept(t: Tensor) -> Tensor:
            return t.to(fn(t.new_empty(0, dtype=torch.float32)).device) if t.is_complex() else fn(t)

        return super()._apply(kept, recurse)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.weights)

    def __repr__(self) -> str:
        return f"PosteriorPredictive({len(self)} samples of {type(self._network[0]).__name__}, {self.kind})"

    def forward(self, x: Tree) -> Classified | Regressed:
        """Return the posterior predictive of inputs ``x`` [n, …], or a dict or a tuple of such, on this module's
        device."""
        with _ONE_AT_A_TIME:
            outputs = self._chunks(x)
            if self.kind == "classification":
                return classify(outputs)
            return regress(self._gaussians(outputs) if self.likelihood is None else self._moments(outputs))

    def outputs(self, x: Tree) -> tuple[Tensor, Tensor]:
        """Return (weights w_s [S], which add up to 1; the network's outputs under each sample [S, n, …]) of inputs
        ``x``.

        Of a classification the classes are on their last axis.
        """
        with _ONE_AT_A_TIME:
            weights, outputs = zip(*self._chunks(x), strict=True)
            return torch.cat(weights), torch.cat(outputs)

    def gaussians(self, x: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """Return (weights w_s [S], which add up to 1; means μ_s [S, n, outputs]; σ_s [S, n or 1, 1]) of a
        regression."""
        require(self.likelihood is None, "kind", self.kind, "be regression: a distribution has its own spread")
        with _ONE_AT_A_TIME:
            weights, means, sigmas = zip(*self._gaussians(self._chunks(x)), strict=True)
            return torch.cat(weights), torch.cat(means), torch.cat(sigmas)

    def _gaussians(self, chunks: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Chunks of (weights [k], means [k, n, outputs], σ [k, n or 1, 1]) from those of outputs; in float32 at
        least."""
        known = None if isinstance(self.noise, OutputNoise) else self.noises()
        done = 0
        for weights, raw in chunks:
            wide = raw.to(torch.promote_types(raw.dtype, torch.float32))
            outputs = wide.unsqueeze(-1) if wide.ndim == 2 else wide.flatten(2)
            if isinstance(self.noise, OutputNoise):
                require(outputs.shape[2:] == (2,), "model", list(raw.shape[1:]), "give two outputs per input, [n, 2]")
                yield (weights, *self.noise.split(outputs))
            else:
                assert known is not None
                yield weights, outputs, known[done : done + len(raw)].view(-1, 1, 1)
            done += len(raw)

    def _moments(self, chunks: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Chunks of (weights [k], means, standard deviations [k, n, targets]) of the likelihood's distributions."""
        for weights, raw in chunks:
            wide = raw.to(torch.promote_types(raw.dtype, torch.float32))
            found = self.likelihood.distribution(wide.unsqueeze(-1) if wide.ndim == 2 else wide.flatten(2))
            yield weights, found.mean, found.variance.sqrt()

    def noises(self) -> Tensor:
        """Return σ_s of a regression's noise, [S], in the target's unit, where it is the same at all inputs.

        Raises:
            UserError: it differs between inputs; `gaussians` gives it.
        """
        if isinstance(self.noise, OutputNoise):
            raise UserError(
                "noises() needs a noise that is the same at all inputs: gaussians(x) gives each input's own"
            )
        if self.log_noise is None:
            return torch.full((len(self),), float(self.noise or 0), device=self.weights.device)
        return self.log_noise.to(torch.promote_types(self.log_noise.dtype, torch.float32)).exp()

    def _chunks(self, x: Tree) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of (weights [k], outputs [k, n, …]) of all samples for a user's inputs."""
        x = without_labels(x)
        for place, leaf in tree.named(x, "x"):
            ok = isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.ndim > 0
            require(
                ok, place, type(leaf).__name__ if not isinstance(leaf, Tensor) else leaf, "be a dense tensor [n, …]"
            )
        if not isinstance(x, Tensor):
            tree.check_sizes(x, "x")
        network = self._network[0]
        samples, shared = dict(self.samples.named_buffers()), dict(self.shared.named_buffers())
        shared |= dict(self._constants.named_buffers())
        tensors = {**shared, **samples}
        dtype = next((tensors[n].dtype for n, _ in network.named_parameters() if n in tensors), torch.float32)
        x = tree.mapped(lambda leaf: prepare_inputs(leaf, self.prepare, dtype), x)
        network.eval()  # its owner may have set it to training
        found = self._outputs(_Runner(network, samples, shared, self.output), x)
        if self.class_axis == -1:
            return found
        return ((weights, outputs.movedim(self.class_axis + 1, -1)) for weights, outputs in found)

    def _shares(self) -> Tensor:
        """w_s, which add up to 1."""
        weights = self.weights.to(torch.promote_types(self.weights.dtype, torch.float32))
        return weights / weights.sum()

    def _outputs(self, run: _Runner, x: Tree) -> Iterator[tuple[Tensor, Tensor]]:
        """Chunks of (weights [k], outputs [k, n, …]) of all samples."""
        weights = self._shares()
        done, size = 0, len(weights)
        leaves = tree.leaves(x)
        like = (tuple((t.shape[1:], t.dtype, t.device) for t in leaves), torch.is_grad_enabled())
        if self.chunk == "auto" and like not in self._bytes and not torch.compiler.is_exporting():
            with Counted() as counted:
                outputs = run.one(0, x)[None]
            self._bytes[like] = counted.bytes / max(tree.size(x), 1)
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
            if found is None:  # outside: the error holds on to the tensors that filled the memory
                self._rows = max(k // 2, 1) * tree.size(x)
                if gpus.is_gpu(leaves[0].device):
                    gpus.release_memory()
                continue
            yield weights[done : done + k], found
            done += k

    def _at_once(self, run: _Runner, x: Tree, like: Any) -> int:
        """The number of samples to run at a time."""
        if not self._vmaps or (self.chunk == "auto" and torch.compiler.is_exporting()):
            return 1
        if self.chunk == "auto":
            device = tree.leaves(x)[0].device
            k = budget(device) // max(1, self._bytes[like] * tree.size(x) + run.bytes_per_sample(device))
        else:
            k = self.chunk
        if self._rows is not None:
            k = min(k, self._rows // max(tree.size(x), 1))
        return max(int(k), 1)

    def _several(self, run: _Runner, start: int, k: int, x: Tree) -> Tensor:
        """Outputs [k, n, …] of samples ``start`` … ``start + k − 1``."""
        if k == 1:
            return run.one(start, x)[None]
        try:
            return run.vmapped(start, k, x)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # each thing that vmap cannot do has an error class of its own
            outputs = torch.stack([run.one(s, x) for s in range(start, start + k)])  # wrong inputs fail here as well
            self._vmaps = False
            log.warning(
                "samples run one after another: torch.func.vmap cannot run this network (%s)", format_error(error)
            )
            return outputs


class _Runner:
    """Runs a network under samples by number."""

    def __init__(
        self,
        network: nn.Module,
        samples: Mapping[str, Tensor],
        shared: Mapping[str, Tensor],
        output: str | int | None,
    ) -> None:
        self._network, self._samples, self._shared, self._output = network, samples, shared, output

    def _call(self, tensors: Mapping[str, Tensor], x: Tree) -> Tensor:
        arguments, named = tree.arguments(tree.mapped(torch.clone, x))  # it may change its inputs
        returned = functional_call(self._network, {**self._shared, **tensors}, arguments, named)
        try:
            out = tree.picked(returned, self._output)
        except LookupError as error:
            raise UserError(f"model must give one tensor [n, …]: {error}") from None
        if not isinstance(out, Tensor):
            raise UserError(f"model must give one tensor of logits, [n, …, classes], got {type(out).__name__}")
        return out

    def one(self, s: int, x: Tree) -> Tensor:
        """Outputs [n, …] of one sample."""
        try:
            return self._call({name: t[s] for name, t in self._samples.items()}, x)
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of the network
            raise networks.refused(x, error) from error

    def vmapped(self, start: int, k: int, x: Tree) -> Tensor:
        """Outputs [k, n, …] of k samples at once."""
        part = {name: t[start : start + k] for name, t in self._samples.items()}
        return vmap(lambda tensors: self._call(tensors, x), randomness="different")(part)

    def bytes_per_sample(self, device: torch.device) -> int:
        """Memory that copies of a sample's own tensors may take; none worth counting where the cache is the limit."""
        if device.type == "cpu":
            return 0
        return sum(t[0].numel() * t.element_size() for t in self._samples.values())


def _tensors_of(
    model: nn.Module, samples: Any, shared: Mapping[str, Tensor], learned: Sequence[str]
) -> tuple[dict[str, Tensor], dict[str, Tensor], int, Tensor | None]:
    """Return the samples' own tensors [S, …], those that they share, their number, and log σ [S] where it is
    learned."""
    needed = [n for n in networks.names(model) if n not in learned]  # a network without it will do
    names = [*needed, *learned]
    common = {n: shared[n] for n in names if n in shared}
    mine = [n for n in names if n not in common]
    stacked = dict(samples) if isinstance(samples, Mapping) else networks.stack(samples, mine)
    sigmas = [t.pop(LOG_NOISE) for t in (common, stacked) if learned and LOG_NOISE in t]
    size = networks.check(needed, model, stacked, common)
    own = {n: stacked[n] for n in needed if n not in common}
    return own, common, size, _log_noise(sigmas, size) if learned else None


def _log_noise(found: Sequence[Tensor], size: int) -> Tensor:
    """log σ of every sample, [S]."""
    if not found or found[0].numel() not in (1, size):
        raise UserError(f"samples must hold {LOG_NOISE!r}, log σ, or the regression have its noise: one number each")
    return found[0].reshape(-1).expand(size).clone()


def _weights(weights: Sequence[float] | None, size: int) -> Tensor:
    if weights is None:
        return torch.ones(size)
    check_plain(weights, "weights", "as weights")
    values = weights.tolist() if isinstance(weights, Tensor | np.ndarray) else weights
    ok = isinstance(values, list | tuple) and len(values) == size
    ok = ok and all(is_number(w) and w >= 0 for w in values) and 0 < sum(values) < float("inf")
    require(ok, "weights", weights, f"be {size} numbers of at least 0, not all 0: one per sample")
    return torch.tensor([w / max(values) for w in values], dtype=torch.float32)  # likelihoods may be tiny or huge
