"""Which chains can be rows of one pack: the reasons why a chain cannot, and what all chains of a pack have in
common."""

from __future__ import annotations

from inspect import unwrap

import torch
from torch import Tensor, nn

from raychains import samplers
from raychains.core.errors import UserError, require
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec, canonical_json
from raychains.data.source import Resident
from raychains.models import stacked
from raychains.priors import Centred
from raychains.samplers import LastLayerLaplace, Sampler
from raychains.samplers.closure import ClosureSampler
from raychains.samplers.isokinetic import Isokinetic
from raychains.tasks import Task
from raychains.tasks.base import LogDensity, PredictiveTask, own_methods
from raychains.tasks.likelihoods import belongs
from raychains.tasks.user_model import train


def check(spec: ChainSpec, task: Task, model: nn.Module | None = None) -> None:
    """Refuse a pack of chains that cannot be one program.

    Raises:
        UserError: a task, a network, a sampler or an execution that packs do not have.
    """
    why = refusal(spec, task, model)
    require(why is None, "pack", spec.pack, f"be left out for this chain: {why}")


def refusal(spec: ChainSpec, task: Task, model: nn.Module | None = None) -> str | None:
    """Return why a chain cannot be part of a pack; None where it can."""
    why = _refusal_of_sampler(spec)
    if why is not None:
        return why
    for name, allowed in (("micro_batch", None), ("sample_only", ())):
        if getattr(spec, name) != allowed:
            return f"it has {name} {getattr(spec, name)}"
    if spec.compile == "cuda-graphs":
        return "it has compile cuda-graphs, and steps of packs are compiled by default alone"
    if isinstance(task, LogDensity):
        return _refusal_of_density(spec, task)
    why = _refusal_of_network(spec) or task_refusal(task, model)
    if why is None and isinstance(task, PredictiveTask) and (own := own_methods(task, "epoch", "epoch_among")):
        return f"its task has its own {own[0]}()"
    return why


def _refusal_of_sampler(spec: ChainSpec) -> str | None:
    kind = samplers.KINDS[spec.sampler.kind]
    ours = (Sampler.step, ClosureSampler.step, LastLayerLaplace.step)
    own_step = all(unwrap(kind.step) is not unwrap(step) for step in ours)  # torch wraps them
    if not issubclass(kind, Isokinetic) and own_step:
        return f"sampler {spec.sampler.kind} has a step of its own"
    if kind.gradients_per_step > 1 and not issubclass(kind, ClosureSampler):
        return f"sampler {spec.sampler.kind} takes {kind.gradients_per_step} gradients a step and is no ClosureSampler"
    return None


def _refusal_of_density(spec: ChainSpec, task: LogDensity) -> str | None:
    kind = samplers.KINDS[spec.sampler.kind]
    if issubclass(kind, Isokinetic):
        return f"sampler {spec.sampler.kind} is packed for networks alone, and its task is a density"
    if not moves_together(spec):
        return f"sampler {spec.sampler.kind} with its settings moves each chain by itself, and its task is a density"
    if kind.variables(spec.sampler.settings) != {THETA: 1}:
        return f"sampler {spec.sampler.kind} draws more than θ, and its task is a density"
    if not task.has_packed_gradient(spec.batch_size):
        return "its gradient has noise of its own, or its task another backward()"
    if not task.pointwise and spec.compile == "none":  # compiled chains are not exact, so that the last bits may differ
        return "its density's gradient is not elementwise over points: that takes compile default"
    return None if spec.block_draws else "its draws are stored one by one"


def _refusal_of_network(spec: ChainSpec) -> str | None:
    isokinetic = issubclass(samplers.KINDS[spec.sampler.kind], Isokinetic)
    if spec.compile != "none" and not isokinetic:
        return f"it has compile {spec.compile}, and of networks' packs those of mclmc alone are compiled"
    if spec.lanes > 1:
        return f"it has lanes {spec.lanes}"
    if spec.prior is not None and spec.prior.kind == Centred.kind:
        return "its prior is centred at its start, as that of local chains is"
    if spec.prior is not None and isokinetic:
        return f"sampler {spec.sampler.kind} is packed with a Gaussian prior on all parameters alone"
    return "bf16 is not packed" if spec.precision == "bf16" else None


def task_refusal(task: Task, model: nn.Module | None = None) -> str | None:
    """Return why networks of a task cannot be computed as rows of one program; None where they can."""
    if not isinstance(task, PredictiveTask):
        return "its task is neither a network with a likelihood nor a density"
    return _refusal_of_loss(task) or _refusal_of_inputs(task, model)


def _refusal_of_loss(task: PredictiveTask) -> str | None:
    own = own_methods(task, "loss", "backward")
    if own or task.own_prior or task.prior is not None:
        return f"its task has {f'its own {own[0]}()' if own else 'a prior of its own'}"
    if own_methods(task, "augmented") and getattr(task, "augment", True):
        return "its training examples are augmented"
    if not (belongs(task.likelihood, "each") and belongs(task.likelihood, "gradients")):
        return "its likelihood gives the loss of a batch alone"
    return None


def _refusal_of_inputs(task: PredictiveTask, model: nn.Module | None) -> str | None:
    if not isinstance(task.source, Resident):
        return "its data are streamed"
    if task.memory_format is not torch.contiguous_format:
        return "channels_last is not packed"
    inputs = task.prepare(task.source.batch(torch.zeros(1, dtype=torch.int64))[0])
    if not isinstance(inputs, Tensor):
        return "its inputs are several tensors"
    model = model if model is not None else train(task.build_model(seed=0, lanes=1))
    try:
        first = next(layer for layer in stacked.layers(model) if isinstance(layer, str))
    except UserError as error:
        return str(error)
    if inputs.numel() != model.get_submodule(first).in_features:
        return f"its network takes inputs {list(inputs.shape[1:])} as several vectors"
    return None


def moves_together(spec: ChainSpec) -> bool:
    """Return whether one update moves all rows: the sampler's is `apply` with its `coefficients`, and nothing more."""
    kind = samplers.KINDS[spec.sampler.kind]
    names = ("_update", "apply", "coefficients")
    update, apply, coefficients = (next(i for i, c in enumerate(kind.__mro__) if n in vars(c)) for n in names)
    return update >= apply == coefficients and kind.updates_together(spec.sampler.settings)


def key(spec: ChainSpec) -> str:
    """Return one text for all chains that one pack can hold: their specs without what may differ from row to row."""
    kind = samplers.KINDS[spec.sampler.kind]
    own = {"seed", "repeat", "chain", "start", "start_chain"}
    if not issubclass(kind, Isokinetic):  # whose rows are at one step of one schedule
        own |= {"schedule", "steps"}
    plain = {n: v for n, v in spec.to_json().items() if n not in own}
    if issubclass(kind, Isokinetic) or moves_together(spec):
        plain["sampler"] = {n: v == 0 if n in kind.elementwise else v for n, v in plain["sampler"].items()}
    else:
        plain["sampler"] = {n: v for n, v in plain["sampler"].items() if n in ("kind", "m_sharpness")}
    return canonical_json(plain)
