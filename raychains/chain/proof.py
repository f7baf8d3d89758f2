"""A trial of a user's task before it runs: a sample must be the whole function, and a chain a function of a
checkpoint's state."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.chain import backward, initialization
from raychains.chain.chain import Chain
from raychains.chain.divergence import Diverged
from raychains.chain.early_stopping import EarlyStopping
from raychains.chain.unreached import unreached
from raychains.core.errors import UserError, format_error
from raychains.core.rng import GLOBALS, seeded
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec, Environment
from raychains.core.threads import threads
from raychains.tasks import PredictiveTask, Task, user_model
from raychains.tasks.examples import check_apart, check_loss, check_mean, equal

STEPS = 3
"""Steps of the trial; its checkpoint is taken after the first."""
EXAMPLES = 4
"""Examples of each gradient at most: whether there is hidden state does not depend on their number."""
COMPARED = ("model", "buffers", "sampler", "loss_sum")
"""Entries of a chain's state that tell whether two chains part ways."""
LARGEST = 10_000_000
"""Bytes of an attribute that is compared: larger ones are data."""
HOLDERS: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, Tensor, np.ndarray),
    *(random.Random, np.random.Generator, np.random.RandomState, torch.Generator),
)
"""Types of attributes that are compared, to name those that change."""
SAME = 1e-5
"""Share of the largest output by which two networks with the same state may differ."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A checkpoint of a chain, and the state that it leads to, which `repeat` compares in another process."""

    spec: ChainSpec
    saved: Mapping[str, Any]
    """The chain's `Chain.state_dict` after its first step."""
    end: Any
    """The compared entries of its state after `STEPS` steps."""
    environment: Environment
    start: Mapping[str, Tensor] | None = None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The result of trying a task."""

    notes: list[str]
    """Lines for the plan."""
    trial: Trial | None = None
    """What another process is to repeat; None of chains that are not exact, and of a task that could not be tried
    here."""

    def warn(self) -> None:
        """Log the notes, where there is no plan to show them in."""
        for note in self.notes:
            log.warning("%s", note)


def prove(spec: ChainSpec, start: Mapping[str, Tensor] | None = None) -> Proof:
    """Try a chain of a user's task: a sample must be the whole function, and an exact chain a function of its state.

    A few steps are made on the CPU, with few examples. A network of another seed that is given the state after them
    must have the same outputs in evaluation mode. The steps of exact chains are made three times: at once, in a new
    chain from a checkpoint of the first, and in another new chain. All must end at the same bits. State that a process
    makes once, such as a cache in a module's global variable, is seen by `repeat` in another process; what shows after
    more steps only is not.

    A task that fails here for want of a GPU, a file or a library is left to its workers, which may have it.

    Returns:
        Lines for the plan, and what another process is to repeat.

    Args:
        spec: one of the task's chains.
        start: as for `Chain`.

    Raises:
        UserError: the task fails, its network's outputs depend on more than a sample holds or on other examples of the
            batch, or two chains differ; the line names what changed beside the state, where it is found.
    """
    if not tasks.is_own(spec.task):
        return Proof(notes=[])
    task = tasks.build(spec.task)
    _check_state(task, spec.lanes)
    if task.low_dimensional and not spec.exact:
        return Proof(notes=[])
    with GLOBALS, threads():  # nothing of another thread comes between two chains
        return _try(spec, task, start)


def repeat(trial: Trial) -> None:
    """Continue a trial's checkpoint in this process, whose arithmetic must be that of the process that made it.

    Raises:
        UserError: it ends elsewhere.
    """
    task = tasks.build(trial.spec.task)
    try:
        with threads():
            chain = Chain(trial.spec, task, start=trial.start)
            if chain.environment() != trial.environment:
                return  # another machine's bits may differ
            chain.load_state_dict(dict(trial.saved))
            _run(chain, STEPS)
            same = _told(chain) == trial.end
    except Exception as error:
        fails = f", and a chain that continues in another process fails: {format_error(error, kind=True)}"
        raise _refused(task, [], fails) from None
    if not same:
        raise _refused(task, [], ", and a chain that continues in another process takes another path")


def _try(whole: ChainSpec, task: Task, start: Mapping[str, Tensor] | None) -> Proof:
    trial = None
    try:
        spec = _small(whole, task)
        chain = Chain(spec, task, start=start)
        user_model.check(chain.model, "build_model")
        begun, unused = _told(chain), _attributes(task, chain.model)
        _run(chain, 1)
        saved = copy.deepcopy(chain.state_dict())
        _run(chain, STEPS)
        if spec.exact:
            end = _told(chain)
            changed = _different(_attributes(task, chain.model), unused)
            del chain  # one model at a time
            chain = _compare(spec, task, start, saved, begun, end, changed)
            trial = Trial(spec=spec, saved=saved, end=end, environment=chain.environment(), start=start)
        notes = [] if task.low_dimensional else _check_network(whole, chain, start)
    except UserError:
        raise
    except Exception as error:
        if not isinstance(error, Diverged) and not _elsewhere(error):
            raise _mistake(task, error) from None
        log.info("task %s was not tried: %s", tasks.name_of(task), format_error(error, kind=True))
        return Proof(notes=[])
    return Proof(notes=notes, trial=trial)


def _compare(
    spec: ChainSpec,
    task: Task,
    start: Mapping[str, Tensor] | None,
    saved: Any,
    begun: Any,
    end: Any,
    changed: list[str],
) -> Chain:
    """Return a chain that has taken the steps anew.

    Raises:
        UserError: it began or ended otherwise than the first, or one that went on from the first's checkpoint did.
    """
    try:
        chain = Chain(spec, task, start=start)
        chain.load_state_dict(saved)
        _run(chain, STEPS)
        same = _told(chain) == end
        del chain
        chain = Chain(spec, task, start=start)
        built = _told(chain) == begun
        _run(chain, STEPS)
        same = same and _told(chain) == end
    except Exception as error:
        fails = f", and a chain that begins anew fails: {format_error(error, kind=True)}"
        raise _refused(task, changed, fails) from None
    if not built:
        raise UserError(
            f"task {tasks.name_of(task)!r} must build equal models at equal seeds, got two that differ: draw initial "
            "values from torch, random or numpy.random"
        )
    if not same:
        raise _refused(task, changed)
    return chain


def _check_state(task: Task, lanes: int) -> None:
    """Refuse a task whose model's state dict holds other things than tensors; a build that fails here is left to
    workers.

    Raises:
        UserError: such a state dict.
    """
    try:
        state = task.build_model(seed=0, lanes=lanes).state_dict()
    except Exception:
        return
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise UserError(
                f"build_model must build a model whose state dict holds tensors alone, got a {type(value).__name__} as "
                f"{name!r}: keep it in a buffer, or in an attribute where it never changes"
            )


def _elsewhere(error: Exception) -> bool:
    """Return whether another machine may have what is missing here: a GPU, a file, a library or memory."""
    missing = isinstance(error, OSError | ImportError | MemoryError | NotImplementedError)
    return missing or any(word in str(error) for word in ("CUDA", "cuda", "GPU", "CPU", "Triton", "out of memory"))


def _mistake(task: Task, error: Exception, what: str = "a step on the CPU, or a prediction,") -> UserError:
    return UserError(f"task {tasks.name_of(task)!r}: {what} fails: {format_error(error, kind=True)}")


def _check_network(whole: ChainSpec, chain: Chain, start: Mapping[str, Tensor] | None) -> list[str]:
    """Try a chain's network after its steps; return lines for the plan.

    Raises:
        UserError: another network with the same state has other outputs, examples are not independent, the loss is no
            mean or has parameters of its own, or the smallest batch fails.
    """
    task, model, batch = chain.task, chain.model, chain.order(0)[0]
    modes = [] if whole.sample_only else user_model.evaluating(model)
    notes = [f"in evaluation mode while the others train: {initialization.some(modes)}"] if modes else []
    _try_smallest(whole, chain)
    notes += unreached(task, model, chain.sampled)
    if type(task).loss is Task.loss:  # its backward() tells nothing of outputs
        return notes
    with seeded(0):
        loss = task.loss(model, batch, torch.Generator().manual_seed(0))
    other = Chain(dataclasses.replace(chain.spec, seed=chain.spec.seed + 1), task, start=start).model
    try:
        other.load_state_dict(model.state_dict())
    except RuntimeError as error:
        raise _mistake(task, error, "another network that loads a sample") from None
    names = [*_different(_attributes(task, model), _attributes(task, other))]
    names += _different(*({n: _bare(b) for n, b in initialization.unsaved(m).items()} for m in (model, other)))
    network = task if isinstance(task, PredictiveTask) and backward.why_not(task) is None else None
    one, again, two = (_outputs(task, network, m, batch) for m in (model, model, other))
    # Outputs that change from call to call are left to the comparison of exact chains.
    if equal(one, again, SAME) and not equal(one, two, SAME):
        where = f" ({initialization.some(names)})" if names else ""
        raise UserError(
            f"task {tasks.name_of(task)!r}: its network's outputs depend on more than its state_dict(), which is what "
            f"a sample holds{where}: a network of another seed with the same state has other outputs. Keep what is "
            "drawn or changed in buffers, self.register_buffer(name, tensor), and layers of a list in "
            "torch.nn.ModuleList"
        )
    check_loss(loss, model)
    if network is not None:
        inputs, targets = network.source.batch(batch)
        check_mean(network.likelihood, model, one, targets)
        if not check_apart(other, network.network_inputs, inputs, "build_model"):
            notes.append(
                "in evaluation mode the network's outputs are random: a sample predicts otherwise at each call"
            )
    return notes


def _different(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    return [name for name in one if name not in two or one[name] != two[name]]


@torch.no_grad()
def _outputs(task: Task, network: PredictiveTask | None, model: nn.Module, batch: Any) -> Tensor:
    """Return a model's outputs of a batch in evaluation mode, or its loss where the task is no network with a
    likelihood."""
    model.eval()
    with seeded(0):
        if network is None:
            return task.loss(model, batch, torch.Generator().manual_seed(0))
        outputs: Tensor = model(network.network_inputs(network.source.batch(batch)[0], next(model.parameters()).dtype))
        return outputs


def _try_smallest(spec: ChainSpec, chain: Chain) -> None:
    """Try the smallest batch that the whole chain has, of which BatchNorm needs two examples.

    Raises:
        UserError: it fails; the line says how the batch comes about.
    """
    task = chain.task
    early = EarlyStopping(spec, task) if spec.early_stop is not None else None
    order = early.epoch(seed=0) if early is not None else task.epoch(seed=0, batch_size=spec.batch_size)
    count = chain.sampler.parts if spec.micro_batch is None else math.ceil(spec.batch_size / spec.micro_batch)
    smallest = _smallest(task, order, count)
    if smallest is None or len(smallest) >= len(chain.order(0)[0]):
        return
    try:
        with seeded(0):
            task.backward(chain.model, smallest, torch.Generator().manual_seed(0))
    except Exception as error:
        if _elsewhere(error):
            raise
        n = len(early.learned) if early is not None else task.num_data
        divided = f", divided in {count}" if count > 1 else ""
        sizes = range(spec.batch_size + 1, 2 * spec.batch_size + 2)
        better = next((b for b in sizes if n % b == 0 or n % b >= 2 * count), "another one")
        raise UserError(
            f"task {tasks.name_of(task)!r}: batches of batch_size={spec.batch_size} from N = {n} training "
            f"examples{divided} have one with {len(smallest)}, which fails: {format_error(error, kind=True)}; take "
            f"batch_size={better}, or leave examples out"
        ) from None


def _smallest(task: Task, order: Sequence[Any], count: int) -> Tensor | None:
    """Return the smallest of the ``count`` parts of an epoch's batches; None where batches are no tensors of
    indices."""
    batches = [order[i] for i in {0, len(order) - 1}]
    if not all(isinstance(batch, Tensor) for batch in batches):
        return None
    return min((part for batch in batches for part in (task.divide(batch, count) if count > 1 else [batch])), key=len)


def _refused(task: Task, changed: list[str], how: str = "") -> UserError:
    what = ", ".join(changed) or "a global variable, a generator of its own or the time, say"
    whose = "log density" if task.low_dimensional else "model"
    instead = (
        ""
        if task.low_dimensional
        else "keep it in buffers (register_buffer), draw from torch, random or numpy.random, or "
    )
    return UserError(
        f"task {tasks.name_of(task)!r}: its {whose} uses state that no checkpoint holds ({what}){how}: {instead}pass "
        "`exact=False`, which marks the run as not exact on resume"
    )


def _small(spec: ChainSpec, task: Task) -> ChainSpec:
    """Return the chain with the arithmetic that every CPU has, in small batches."""
    fields: dict[str, Any] = {
        "precision": "fp64" if spec.precision == "fp64" else "fp32",
        "micro_batch": None,
        "compile": "none",
    }
    if not task.low_dimensional:
        size = min(EXAMPLES * int(spec.sampler.settings.get("m_sharpness", 1)), spec.batch_size)
        if task.num_data < STEPS * size or _batches(task, size) != math.ceil(task.num_data / size):
            size = spec.batch_size  # its own batches are small, or of a size that the task chooses
        fields |= {"batch_size": size, "steps_per_epoch": len(task.epoch(seed=0, batch_size=size))}
        fields |= {"early_stop": None}
        if spec.start_chain is not None:  # which is not there yet
            fields |= {"start_chain": None, "sample_only": ()}
    return dataclasses.replace(spec, **fields)


def _batches(task: Task, size: int) -> int | None:
    """Return the number of an epoch's batches; None of a task that does not take their size."""
    try:
        return len(task.epoch(seed=0, batch_size=size))
    except Exception:  # of the user's code
        return None


def _run(chain: Chain, step: int) -> None:
    """Go on to ``step``, or to the end."""
    while chain.advance(lambda: chain.step >= step):
        pass


def _told(chain: Chain) -> Any:
    """Return what is compared of a chain's state."""
    state = chain.state_dict()
    return [_bare(state[name]) for name in COMPARED]


def _bare(value: Any) -> Any:
    """Return what can be compared of a value: hashes in place of tensors, the states of generators."""
    match value:
        case Tensor():
            return tensors_sha256({"": value})
        case np.ndarray():
            return value.dtype.str, value.shape, value.tobytes()
        case Mapping():
            return [(name, _bare(entry)) for name, entry in value.items()]
        case list() | tuple():
            return [_bare(entry) for entry in value]
        case set() | frozenset():
            return sorted(map(repr, value))
        case nn.Module():
            return _bare(value.state_dict())
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return _bare(value.bit_generator.state)
        case np.random.RandomState() | torch.Generator():
            return _bare(value.get_state())
    return repr(value)


def _attributes(task: Task, model: nn.Module) -> dict[str, Any]:
    """Return what can be compared of a task's, its model's and the modules' attributes but for parameters and
    buffers."""
    usual = {*vars(nn.Module()), "forward"}
    owners = {"": task, **{f"{type(m).__name__}.": m for m in model.modules()}}
    return {
        f"{prefix}{name}": _bare(value)
        for prefix, owner in owners.items()
        for name, value in vars(owner).items()
        if name not in usual and isinstance(value, HOLDERS) and getattr(value, "nbytes", 0) <= LARGEST
    }
