"""A trial of a user's task before it runs: its chain must be a function of the state that a checkpoint holds."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.core.errors import UserError, format_error
from raychains.core.rng import GLOBALS
from raychains.core.sample import tensors_sha256
from raychains.core.spec import ChainSpec, Environment
from raychains.core.threads import threads
from raychains.tasks import Task, user_model

STEPS = 3
"""Steps of the trial; its checkpoint is taken after the first."""
EXAMPLES = 4
"""Examples of each step at most: whether there is hidden state does not depend on their number."""
COMPARED = ("model", "buffers", "sampler", "loss_sum")
"""Entries of a chain's state that tell whether two chains part ways."""
LARGEST = 10_000_000
"""Bytes of an attribute that is compared: larger ones are data."""
HOLDERS: tuple[type, ...] = (
    *(bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, Tensor, np.ndarray),
    *(random.Random, np.random.Generator, np.random.RandomState, torch.Generator),
)
"""Types of attributes that are compared, to name those that change."""

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


def prove(spec: ChainSpec, start: Mapping[str, Tensor] | None = None) -> Trial | None:
    """Try whether a chain of a user's task is a function of its state; chains that are not exact are not tried.

    A few steps are made on the CPU, with few examples, three times: at once, in a new chain from a checkpoint of the first,
    and in another new chain. All must end at the same bits. State that a process makes once, such as a cache in a module's
    global variable, is seen by `repeat` in another process; what shows after more steps only is not.

    A task that fails here otherwise is left to its workers, which may have what it needs.

    Returns:
        What another process is to repeat; None of what was not tried.

    Args:
        spec: one of the task's chains.
        start: as for `Chain`.

    Raises:
        UserError: two of them differ; the line names what changed beside the state, where it is found.
    """
    if not tasks.is_own(spec.task):
        return None
    task = tasks.build(spec.task)
    user_model.check_state(task, spec.lanes)
    if not spec.exact:
        return None
    with GLOBALS, threads():  # nothing of another thread comes between two chains
        return _compare(_small(spec, task), task, start)


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


def _compare(spec: ChainSpec, task: Task, start: Mapping[str, Tensor] | None) -> Trial | None:
    try:
        first = Chain(spec, task, start=start)
        begun, unused = _told(first), _attributes(task, first.model)
        _run(first, 1)
        saved = copy.deepcopy(first.state_dict())
        _run(first, STEPS)
        end = _told(first)
    except Exception as error:
        log.info("task %s was not tried: %s", tasks.name_of(task), format_error(error, kind=True))
        return None
    user_model.check(first.model, "build_model")
    changed = [name for name, value in _attributes(task, first.model).items() if unused.get(name) != value]
    del first  # one model at a time
    try:
        chain = Chain(spec, task, start=start)
        chain.load_state_dict(saved)
        _run(chain, STEPS)
        same = _told(chain) == end
        environment = chain.environment()
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
            f"task {tasks.name_of(task)!r} must build equal models at equal seeds, got two that differ: draw initial values "
            "from torch, random or numpy.random"
        )
    if not same:
        raise _refused(task, changed)
    return Trial(spec=spec, saved=saved, end=end, environment=environment, start=start)


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
    fields: dict[str, Any] = {"precision": "fp64" if spec.precision == "fp64" else "fp32", "micro_batch": None}
    if not task.low_dimensional:
        size = min(EXAMPLES, spec.batch_size)
        fields |= {"batch_size": size, "steps_per_epoch": math.ceil(task.num_data / size)}
        fields |= {"early_stop": None}
        if spec.start_chain is not None:  # which is not there yet
            fields |= {"start_chain": None, "sample_only": ()}
    return dataclasses.replace(spec, **fields)


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
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return _bare(value.bit_generator.state)
        case np.random.RandomState() | torch.Generator():
            return _bare(value.get_state())
    return repr(value)


def _attributes(task: Task, model: nn.Module) -> dict[str, Any]:
    """Return what can be compared of a task's, its model's and the modules' attributes but for parameters and buffers."""
    usual = {*vars(nn.Module()), "forward"}
    owners = {"": task, **{f"{type(m).__name__}.": m for m in model.modules()}}
    return {
        f"{prefix}{name}": _bare(value)
        for prefix, owner in owners.items()
        for name, value in vars(owner).items()
        if name not in usual and isinstance(value, HOLDERS) and getattr(value, "nbytes", 0) <= LARGEST
    }
