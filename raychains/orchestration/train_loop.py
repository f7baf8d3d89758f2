"""A chain as the training loop of Ray Train's workers.

Each worker's loop goes on in step with the others, since every report is a collective of Train's, while the chain runs
in threads beside it: rank 0's writes samples and checkpoints to the run store, the others step along. From there a
group that Train starts again resumes bit for bit.
"""

from __future__ import annotations

import json
import queue
import tempfile
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ray import train
from ray.exceptions import RayActorError
from ray.train import Checkpoint, RunConfig, ScalingConfig, collective
from ray.train.torch import TorchConfig, TorchTrainer, get_device
from torch import Tensor

from raychains.chain.process_group import TIMEOUT, Ranks
from raychains.core import gpus
from raychains.core.config import Run
from raychains.core.errors import UserError, require
from raychains.core.spec import ChainSpec
from raychains.core.validation import positive_int
from raychains.orchestration.chains.attempt import run_rank
from raychains.orchestration.chains.chain_worker import meeting, set_up
from raychains.orchestration.chains.messages import ChainAssignment
from raychains.orchestration.chains.reported_chain import ReportedChain, Reporter
from raychains.orchestration.cluster import ray_watch
from raychains.orchestration.cluster.payload import Payload
from raychains.planning.reports import report_steps
from raychains.planning.sweep_points import Points
from raychains.store import Storage, initial_states
from raychains.tasks import Task
from raychains.tasks.from_options import SPLIT, make_task

__all__ = ["RunConfig", "ScalingConfig", "TorchTrainer", "TrainSettings", "chain_trainer", "plan", "scaling"]

CHECKPOINT = "chain.json"
"""The file in a checkpoint of Train's."""
TICK = 1.0
"""Seconds after which the loops meet even without news: then they see a notice for a node, and a rank that failed."""


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of one trainer; they are pickled with its loop."""

    options: Run
    user_code: Payload
    repeat: int
    """Number of the repetition, from 0."""
    reports: int
    """Reports of a chain without cycles."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The chain of a trainer."""

    task: Task
    spec: ChainSpec
    length: int
    """Epochs."""
    start: Mapping[str, Tensor] | None
    """Its initial parameters, if they come from a file."""


@dataclass(frozen=True)
class Follow:
    """Rank 0 begins an attempt, and waits for the other ranks."""

    attempt: int
    restart: int
    restart_from: int
    address: str


REPORT, LEFT, END = "report", "left", "end"
"""Other messages of rank 0 to the others: a report is due, the chain left its nodes, the chain is through."""


def plan(options: Run, given: Task | None, repeat: int) -> Plan:
    """Return the chain that the options say.

    Raises:
        UserError: an option out of range, or a density.
    """
    task = make_task(options, options.task, given)
    require(not task.low_dimensional, "task", options.task, "have data: run a density's chains with rc.run")
    points = Points(replace(options, lanes=1), task)
    point = points.make(0, {}, repeat + 1)
    return Plan(task=task, spec=point.specs[repeat], length=point.length, start=points.start)


def scaling(num_workers: int | None, given: ScalingConfig | None) -> ScalingConfig:
    """Return where Train places the workers.

    Raises:
        UserError: no number of workers, two of them, or other GPUs of a worker than 0 or 1.
    """
    if num_workers is not None:
        positive_int("num_workers", num_workers)
    if given is None:
        return ScalingConfig(num_workers=num_workers or 1)
    require(isinstance(given, ScalingConfig), "scaling_config", given, "be a ray.train.ScalingConfig")
    workers = given.num_workers
    require(given.min_workers > 0, "scaling_config", given, "have num_workers of 1 or more: there is no local mode")
    same = num_workers in (None, workers)
    require(same, "num_workers", num_workers, f"be left out or {workers}, as scaling_config has it")
    # Two ranks on one GPU cannot exchange anything by nccl.
    share = given.num_gpus_per_worker
    fits = share in (0, 1) or (share < 1 and workers == 1)
    require(fits, "scaling_config", given, "have 0 or 1 GPU for each worker")
    return given


def chain_trainer(settings: TrainSettings, scaling_config: ScalingConfig, run_config: RunConfig) -> TorchTrainer:
    """Return the trainer; `raychains.api.train.trainer` checks the arguments."""
    # The group that Train starts again, or a trainer of the same run, takes the chain over at once.
    own = uuid.uuid5(uuid.NAMESPACE_OID, f"{run_config.storage_path}/{run_config.name}")
    return TorchTrainer(
        partial(chain_loop, settings, own.hex),
        torch_config=TorchConfig(timeout_s=int(TIMEOUT)),
        scaling_config=scaling_config,
        run_config=run_config,
    )


def chain_loop(settings: TrainSettings, driver_id: str) -> None:
    """Run the chain to its end, in each worker of the group."""
    context, device = train.get_context(), get_device()
    set_up(gpus.is_gpu(device), settings.options.data_root)
    torch.set_num_threads(settings.options.cpus_per_chain)
    planned = plan(initial_states.with_file(settings.options), settings.user_code.unpack(), settings.repeat)
    rank, size = context.get_world_rank(), context.get_world_size()
    if rank == 0:
        _lead(settings, driver_id, planned, size, device)
    else:
        _follow(planned, Storage(settings.options.store), rank, size, device)


def _lead(settings: TrainSettings, driver_id: str, planned: Plan, size: int, device: torch.device) -> None:
    """Run the chain as rank 0, and tell the others what is due."""
    news: queue.Queue[Any] = queue.Queue()

    def follow(assignment: ChainAssignment) -> Callable[[torch.device], Ranks]:
        address, listener = meeting()
        news.put(Follow(assignment.attempt, assignment.restart, assignment.restart_from, address))
        return lambda device: Ranks(0, size, address, device, listener=listener)

    options, spec, store = settings.options, planned.spec, Storage(settings.options.store)
    evaluation = planned.task.splits().get(SPLIT)
    if evaluation is not None:
        evaluation.configure(bins=options.bins, device=device)
    steps = report_steps(spec, settings.reports)
    reporter = Reporter(spec=spec, length=planned.length, steps=steps, evaluation=evaluation)
    chain = ReportedChain(
        reporter=reporter,
        options=options,
        task=planned.task,
        run=f"train:{driver_id}",
        driver_id=driver_id,
        device=device,
        ranks=size,
        follow=follow if size > 1 else None,
    )

    def run() -> None:
        try:
            for report in chain.reports(_known(spec)):
                del report["done"]
                about = {"digest": spec.digest, "step": reporter.step, "reports": reporter.reported}
                news.put((report, {**about, "store": store.location()}))
        finally:
            news.put(END)

    running = ray_watch.called(run, "chain")
    while True:
        new = _taken(news)
        if isinstance(new, tuple):
            _tell(REPORT)
            _report(*new)
        elif new == END:
            error = running.exception()
            if error is not None and not isinstance(error, RayActorError):
                raise error
            _tell(END if error is None else LEFT)
            if error is not None:
                raise error
            return
        else:
            _tell(new)
        if train.get_preemption_info() is not None:
            chain.leave()


def _follow(planned: Plan, store: Storage, rank: int, size: int, device: torch.device) -> None:
    """Run the chain as another rank than 0."""
    spec = planned.spec.to_json()
    running: Future[None] | None = None
    while True:
        told = _tell(None)
        if isinstance(told, Follow):
            if running is not None:
                running.result()
            assignment = ChainAssignment(
                spec=spec, attempt=told.attempt, restart=told.restart, restart_from=told.restart_from, ranks=size
            )
            rank_of = partial(_run_rank, assignment, told.address, planned.task, store, rank, device)
            running = ray_watch.called(rank_of, "rank")
        elif told == REPORT:
            train.report({})
        elif told in (LEFT, END):
            if running is not None:
                running.result()
            return
        if running is not None and running.done():
            running.result()
        train.get_preemption_info()


def _run_rank(
    assignment: ChainAssignment, address: str, task: Task, store: Storage, rank: int, device: torch.device
) -> None:
    group = Ranks(rank, assignment.ranks, address, device)
    run_rank(assignment, store, {repr(task.spec().to_json()): task}, group, device)


def _tell(said: Any) -> Any:
    """Return what rank 0 says, on every rank."""
    return collective.broadcast_from_rank_zero(said)


def _taken(news: queue.Queue[Any]) -> Any:
    """Return the next of what is new; None when there is nothing."""
    try:
        return news.get(timeout=TICK)
    except queue.Empty:
        return None


def _report(report: dict[str, Any], about: Mapping[str, Any]) -> None:
    """Report, with a checkpoint that says which chain this is and where: the run store has all else."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, CHECKPOINT).write_text(json.dumps(about))
        train.report(report, checkpoint=Checkpoint.from_directory(folder))


def _known(spec: ChainSpec) -> int:
    """Return how many reports Train has already.

    Raises:
        UserError: the run is of another chain.
    """
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as folder:
        about = json.loads(Path(folder, CHECKPOINT).read_text())
    if about["digest"] != spec.digest:
        raise UserError(
            f"run_config must name a run of this chain, {spec.digest[:12]}, or a new one, got "
            f"{train.get_context().get_experiment_name()!r}: it has reports of chain {about['digest'][:12]}"
        )
    return int(about["reports"])
