"""`rc.train`: a chain as the training loop of Ray Train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raychains.api.drivers import portable
from raychains.api.keywords import task_of
from raychains.chain import proof
from raychains.core.config import Run
from raychains.core.data_root import rooted
from raychains.core.errors import UserError, require, shown
from raychains.core.options import make
from raychains.core.validation import integer, positive_int
from raychains.orchestration.cluster.resource_config import ResourceConfig
from raychains.planning.reports import REPORTS

if TYPE_CHECKING:
    from raychains.orchestration.train_loop import RunConfig, ScalingConfig, TorchTrainer
    from raychains.tasks import Task

__all__ = ["trainer"]

SCALING, FAILURES = (
    "scaling_config=ray.train.ScalingConfig",
    "ray.train.RunConfig(failure_config=ray.train.FailureConfig",
)
TRAINS = {
    "name": "run_config=ray.train.RunConfig(name=…)",
    "resume": "the same call again, which resumes the chain",
    "address": "ray.init",
    "namespace": "ray.init",
    "object_store_memory": "ray.init",
    "cpus_per_chain": f"{SCALING}(resources_per_worker={{'CPU': …}})",
    "gpus_per_chain": f"{SCALING}(use_gpu=True)",
    "accelerator_type": f"{SCALING}(accelerator_type=…)",
    "workers_per_chain": "num_workers",
    "concurrent": "one trainer for each chain",
    "chains": "one trainer for each chain, and repeat",
    "repeats": "one trainer for each chain, and repeat",
    "lanes": "one trainer for each chain, and repeat",
    "callback": "run_config=ray.train.RunConfig(callbacks=…)",
    "log": "run_config=ray.train.RunConfig(callbacks=…)",
    "tensorboard": "run_config=ray.train.RunConfig(callbacks=…)",
    "max_failures": f"run_config={FAILURES}(max_failures=…))",
    "max_preemptions": f"run_config={FAILURES}(max_preemption_failures=…))",
    "on_divergence": "rc.run, whose driver restarts cycles",
    "slot_timeout": "rc.run, whose driver waits for room",
    "stall_timeout": "rc.run, whose driver watches the steps",
    "evaluators": "rc.evaluate",
    "gpus_per_evaluator": "rc.evaluate",
    "keep_predictions": "rc.evaluate",
}
"""Options of `Run` that are Ray's, Train's or a driver's own here, and what is used instead."""


def trainer(
    *,
    task: str | Task,
    epochs: int,
    num_workers: int | None = None,
    store: str = "runs",
    repeat: int = 0,
    reports: int = REPORTS,
    scaling_config: ScalingConfig | None = None,
    run_config: RunConfig | None = None,
    **options: Any,
) -> TorchTrainer:
    """Return a ``TorchTrainer`` of Ray Train, whose workers run one chain together.

    After every cycle it reports ``epoch``, ``cycle``, ``samples``, ``gradient_evaluations``, ``digest``, and the
    metrics of the ensemble of the samples so far on the split val; where the task has none, the training ``loss`` at
    the last sample. The test split is never read.

    Args:
        task: a task's name, its import path, or a `raychains.Task`.
        epochs: the length of the chain.
        num_workers: processes that run the chain together; default that of ``scaling_config``, else 1. Samples do not
            depend on it, given ``micro_batch``.
        store: the run store. A chain that it has is resumed from there; a finished one is only reported.
        repeat: which repetition of `raychains.run` with the same options the chain is, from 0.
        reports: how often a chain whose schedule has no cycles reports.
        scaling_config: Train's, with the resources of each worker; its CPUs are the torch threads.
        run_config: Train's, with the name, the storage of reports, and how many failures and preemptions are survived.
        options: options of `raychains.run` that concern a chain.

    Example: ``rc.train.trainer(task="digits", epochs=80, num_workers=2).fit()``

    Raises:
        UserError: an option that is unknown, out of range or Train's own; a density.
    """
    from raychains.orchestration import train_loop
    from raychains.orchestration.cluster import payload

    for name, instead in TRAINS.items():
        if name in options:
            raise UserError(f"{name} must be left out of a trainer, got {shown(options[name])}: use {instead}")
    integer("repeat", repeat)
    positive_int("reports", reports)
    scaling = train_loop.scaling(num_workers, scaling_config)
    ok = run_config is None or isinstance(run_config, train_loop.RunConfig)
    require(ok, "run_config", run_config, "be a ray.train.RunConfig")
    own = {
        "chains": 1,
        "workers_per_chain": scaling.max_workers,
        "cpus_per_chain": max(1, int(scaling.num_cpus_per_worker)),
        "gpus_per_chain": None,
    }
    given, made = task_of(make(Run, {"task": task, "epochs": epochs, "store": store, **options, **own}))
    ResourceConfig.of(made)
    if given is not None:
        payload.check(given)
    with rooted(made.data_root):
        try:
            planned = train_loop.plan(made, given, repeat)  # what is wrong is said here, not in every worker
        except UserError as error:  # the options call it so
            raise UserError(str(error).replace("workers_per_chain", "num_workers")) from None
        proof.prove(planned.spec, planned.start).warn()
    made = portable(made, planned.start)
    code = payload.for_trials(given)
    settings = train_loop.TrainSettings(options=made, user_code=code, repeat=repeat, reports=reports)
    return train_loop.chain_trainer(settings, scaling, run_config or train_loop.RunConfig())
