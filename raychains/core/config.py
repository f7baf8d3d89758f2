"""The options of every command: one flat dataclass each, the same names on the command line and in Python.

A number that is left out takes the method's default for the task, which the printed plan shows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar

from raychains.core.data_root import root_of
from raychains.core.duration import seconds
from raychains.core.errors import UserError, require, unknown_name
from raychains.core.options import Form, Options
from raychains.core.ranges import MOST_POINTS, Range, read_grid, read_space
from raychains.core.registry import check_name, known_names, modules_defining
from raychains.core.settings_parser import entries
from raychains.core.spec import MOST_ROWS
from raychains.core.validation import (
    above_1,
    at_least_0,
    fraction,
    integer,
    local_file,
    local_folder,
    open_fraction,
    path_of,
    positive,
    positive_int,
)

MEASURES = (
    f"Further analyses: {', '.join(modules_defining('measures', 'MEASURE'))}. Each has tables and figures of its own "
    "in the run's folder and report: docs/reference/measures.md. module:MEASURE is one of your own."
)
TASK = (
    f"The task to sample: one of {', '.join(sorted(known_names('task')))}; or module:make_task, a task of your own, "
    "looked up in the current folder first (see raychains init-task and init-density)."
)
SAMPLER = f"One of {' '.join(known_names('sampler'))}, or module:Class of your own"
SCHEDULE = f"One of {' '.join(known_names('schedule'))}, or module:Class of your own"
PRESET = (
    "A named comparison of arms that differ in one setting; it sets task, sampler and schedule: "
    f"docs/reference/presets.md. One of {', '.join(known_names('preset'))}."
)
MOST_CHAINS = 10_000
"""Chains of all arms and repeats of one plan, which lists every one of them."""
MOST_REPEATS = 1_000_000
"""Lanes hold more repeats than a plan could list chains."""
check_exploration = partial(fraction, why=": it is the share of each cycle spent without noise (β)")
check_grace = partial(open_fraction, why=": it is the share of the epochs without stops")
Text = str | None
Integer = int | None
Count = Annotated[int, Form(check=positive_int)]
MaybeNatural = Annotated[int | None, Form(check=integer)]
MaybeCount = Annotated[int | None, Form(check=positive_int)]
Natural = Annotated[int, Form(check=integer)]
Positive = Annotated[float | None, Form(check=positive)]
NotNegative = Annotated[float | None, Form(check=at_least_0)]
PerSampler = float | str | Mapping[Any, Any] | None
IntegerPerSampler = int | str | Mapping[Any, Any] | None
Duration = Annotated[float | str, Form(metavar="TIME", convert=seconds)]
MaybeDuration = Annotated[float | str | None, Form(metavar="TIME", convert=seconds)]
Names = Annotated[Sequence[str], Form()]
Patterns = Annotated[Sequence[str], Form(metavar="PATTERN …")]
Settings = Annotated[Sequence[str] | Mapping[str, Any], Form(metavar="NAME=VALUE …", convert=entries)]
Stored = Annotated[str, Form(positional=True)]
DataRoot = Annotated[str | None, Form(convert=lambda _, given: root_of(given))]


def store_of(field: str, given: str) -> str:
    """Return the store that is meant: the one given, else that of the environment, else ``runs``."""
    return path_of(field, given or os.environ.get("RAYCHAINS_STORE") or "runs")


def check_preset(field: str, value: str) -> None:
    """Refuse a name that no preset has."""
    if value not in known_names(field):
        raise unknown_name(field, value, known_names(field))


DEEP_ENSEMBLE = re.compile(r"deep-ensemble(?::([1-9]\d{0,8}),([1-9]\d{0,8}))?")
"""The form of ``init_from`` that is no file, with the epochs and the patience of the members."""
RANDOM = "none"
"""The word of ``init_from`` for random starts of a method that has another start by itself."""


def check_start(field: str, value: str) -> None:
    """Refuse a text that names a deep ensemble otherwise than as ``deep-ensemble[:epochs,patience]``."""
    ensemble = _is_ensemble(value)
    form = f"{RANDOM} or deep-ensemble[:epochs,patience], with integers above 0"
    ok = not ensemble or DEEP_ENSEMBLE.fullmatch(value) is not None
    require(ok, field, value, f"be a file, a torch.nn.Module, its state dict, {form}")


def _is_ensemble(start: str) -> bool:
    return re.split(r"[^\w-]", start)[0] == "deep-ensemble"


def check_file(field: str, value: str) -> None:
    """Refuse a start that is no file."""
    file = value != RANDOM and not _is_ensemble(value)
    require(file, field, value, "be a checkpoint's file for a local posterior: chains stay around it")


def pack_width(field: str, value: str) -> None:
    """Refuse anything but auto, none or the number of chains in a pack."""
    ok = value in ("auto", "none") or (value.isdecimal() and 1 <= int(value) <= MOST_ROWS)
    require(ok, field, value, f"be auto, none or the number of chains in a pack, at most {MOST_ROWS}")


@dataclass(frozen=True, kw_only=True)
class Common(Options):
    """Options of the store and of the resources."""

    store: Annotated[str, Form(convert=store_of)] = ""
    """Folder of the run store, or any URI that pyarrow knows (s3://bucket/prefix); default RAYCHAINS_STORE, else
    runs."""
    name: Text = None
    """Name of the run; default the task and a hash of all settings, so that equal settings give the same name."""
    resume: bool = False
    """Continue the run of this name, if there is one: finished chains are not run again, stopped ones continue."""
    data_root: DataRoot = None
    """Folder with the data sets (torchvision's layout); default RAYCHAINS_DATA, else a folder of the user's cache."""
    address: Text = None
    """Ray cluster to join, HOST:PORT; default RAY_ADDRESS, else Ray is started on this machine."""
    namespace: str = "raychains"
    """Ray namespace in which worker processes are named, such as raychains/NAME/chain-worker-0-1a2b3c."""
    cpus_per_chain: Count = 1
    """CPU cores per chain, which are also its torch threads. --resume needs the same number."""
    gpus_per_chain: NotNegative = None
    """GPUs per chain. With .5 two chains share a GPU; with 8 each chain has eight workers with one GPU each. Default 1
    if Ray has GPUs, else 0."""
    workers_per_chain: MaybeCount = None
    """Processes that run each chain together, each with cpus_per_chain and at most one GPU; the batch is divided among
    them. If micro_batch is given, samples are the same for any number of workers."""
    accelerator_type: Text = None
    """Type of GPU for chains, and for evaluators that use GPUs, by Ray's names: A100, H100, T4."""
    concurrent: MaybeCount = None
    """Largest number of chains that run at once; default as many as the cluster holds. On a cluster with --address,
    that many workers are requested even if no node has room yet, so that an autoscaler adds nodes."""
    slot_timeout: MaybeDuration = None
    """Time that a run waits for free resources while none of its chains runs, in seconds or as 5min, 1h. Default 15min
    if no node is large enough, no limit if others occupy the nodes. Then the run ends; it can be resumed."""
    stall_timeout: Duration = 30.0
    """A chain that makes no step for this long is reported as stalled; after three times as long another worker takes
    over. In seconds or as 30s, 5min. Chains with slow steps, new chains and evaluations have longer limits:
    docs/reliability/failures.md"""
    evaluators: MaybeCount = None
    """Evaluation workers; default one for every two chains that run at once, or a single one if they use GPUs."""
    gpus_per_evaluator: NotNegative = None
    """GPUs per evaluation worker, taken from chains: 1/k, such as .5, or a whole number; default 0: it
    predicts on the CPU."""
    checkpoint_every: Duration = 60.0
    """Time between checkpoints of each chain, in seconds or as 60s, 5min, 1h; ends of cycles have checkpoints as
    well."""
    max_failures: Natural = 3
    """Times in a row that a chain may lose its worker without making progress; also the largest number of restarts by
    on_divergence."""
    max_preemptions: MaybeNatural = None
    """Times that a chain may move from a node that is taken back, such as a spot machine; default any number."""
    on_divergence: Annotated[str, Form(metavar="{stop,restart-cycle,drop-chain}")] = "stop"
    """What to do with a chain that diverges (docs/reliability/failures.md). stop: give it up, and its arms have no
    result; restart-cycle: go back to the start of its cycle with fresh noise; drop-chain: evaluate its arms without
    this chain (raychains reproduce refuses it)."""
    bins: Annotated[int | None, Form(check=partial(integer, least=1, most=1000))] = None
    """Number of bins of calibration errors and reliability diagrams; default that of the run's last evaluation, else
    15. The ATMC paper uses 8."""
    keep_predictions: Annotated[str, Form(metavar="{auto,all,none}")] = "auto"
    """Whether samples' predictions are kept in the store, for further measures without a forward pass. auto: all
    of a run's if they take at most 1 GB, else none. raychains evaluate --measures needs them: there auto means all, and
    none is an error."""
    object_store_memory: MaybeCount = None
    """Bytes of Ray's object store, which holds data that processes exchange, when Ray is started here; default 1 GB or
    20 % of the memory, whichever is less."""
    callback: Annotated[Sequence[str], Form(check=check_name)] = ()
    """Callbacks that get the run's events besides the terminal: jsonl (events in STORE/runs/NAME/events), tensorboard,
    ray-metrics, wandb or mlflow (these two need extra packages); module:Class is one of your own.
    docs/how-to/monitor.md says what each gets."""
    log: Annotated[str | None, Form(check=local_file)] = None
    """A local file to append events to, one JSON object per line; the event Tick only every ten seconds."""
    tensorboard: Annotated[str | None, Form(check=local_folder)] = None
    """Write TensorBoard's files to this local folder. Default with --callback tensorboard and a local store:
    STORE/runs/NAME/tensorboard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        gpus, workers = self.gpus_per_chain, self.workers_per_chain
        if self.gpu_workers is None:
            # Two ranks on one GPU cannot exchange anything by nccl.
            fits = workers in (None, 1) or gpus in (None, 0, 1)
            require(fits, "gpus_per_chain", gpus, f"be 0 or 1 for each of several workers, or {workers}, their number")
        else:
            fits, allowed = workers in (None, gpus), f"be left out or {gpus:g} beside `gpus_per_chain={gpus:g}`"
            require(fits, "workers_per_chain", workers, allowed)

    @property
    def gpu_workers(self) -> int | None:
        """The workers of a chain with several whole GPUs: one for each of them; None of other chains."""
        gpus = self.gpus_per_chain
        return int(gpus) if gpus is not None and gpus > 1 and gpus == int(gpus) else None

    @property
    def workers(self) -> int:
        """The workers of each chain."""
        return self.gpu_workers or self.workers_per_chain or 1

    @property
    def gpus_per_worker(self) -> float | None:
        """The GPUs of each worker; None as of ``gpus_per_chain``."""
        return 1.0 if self.gpu_workers is not None else self.gpus_per_chain

    @property
    def workers_field(self) -> str:
        """The option that says how many workers a chain has."""
        return "workers_per_chain" if self.workers_per_chain is not None else "gpus_per_chain"


@dataclass(frozen=True, kw_only=True)
class Sampling(Common):
    """Settings of the chains that run and compare share."""

    epochs: MaybeCount = None
    """Passes over the data of each chain (tasks with data)."""
    steps: MaybeCount = None
    """Gradient steps of each chain (densities)."""
    chains: Annotated[int, Form(check=partial(integer, least=1, most=MOST_CHAINS))] = 4
    """Parallel chains."""
    cycles: Annotated[IntegerPerSampler, Form(aliases=("-M",), per_sampler=True, check=positive_int)] = None
    """M: number of cycles of a cyclical step size."""
    exploration: Annotated[PerSampler, Form(aliases=("--beta",), per_sampler=True, check=check_exploration)] = None
    """β in [0, 1): share of each cycle spent without noise."""
    samples_per_cycle: MaybeCount = None
    """Samples kept at the end of each cycle."""
    thinning: MaybeCount = None
    """Steps between kept samples. Default 1 for densities and an epoch for networks; with cycles a share of an epoch
    that the task sets, half an epoch for a network of your own."""
    lr: Annotated[PerSampler, Form(per_sampler=True, check=positive)] = None
    """Initial step size on the mean-loss scale, as in torch.optim.SGD. raychains compare also takes a value per
    sampler: sgld=.1,sghmc=.01; samplers that you do not name keep their defaults. So it does for final-lr, momentum,
    weight-decay, temperature, temperature-ramp, exploration, cycles and burn-in."""
    final_lr: Annotated[PerSampler, Form(per_sampler=True, check=positive)] = None
    """Step size at the last step of a linear, exponential or decreasing schedule; default a hundredth of lr, or for a
    decreasing schedule the task's value."""
    burn_in: Annotated[IntegerPerSampler, Form(per_sampler=True, check=integer)] = None
    """Epochs (steps of a density) of optimisation without noise at the start of the run, or of each cycle, where it
    replaces β."""
    temperature_ramp: Annotated[PerSampler, Form(per_sampler=True, check=fraction)] = None
    """Share of the run (or cycle) over which T grows linearly from 0 once the noise begins; default 0: at once."""
    momentum: Annotated[PerSampler, Form(per_sampler=True, check=fraction)] = None
    """Momentum m in [0, 1) of the methods that have it; the friction is 1 − m."""
    temperature: Annotated[PerSampler, Form(aliases=("-T",), per_sampler=True, check=at_least_0)] = None
    """Posterior temperature T: 1 samples the posterior, 0 optimises."""
    weight_decay: Annotated[PerSampler, Form(per_sampler=True, check=at_least_0)] = None
    """Strength λ of the Gaussian prior N(0, 1/(Nλ)) on the mean-loss scale."""
    prior: Annotated[Sequence[str], Form(metavar="[PATTERN=]PRIOR …", objects=True)] = ()
    """The prior of a network's parameters, instead of weight_decay: gaussian:STD, fan-in:GAIN (N(0, GAIN²/fan_in) on
    weights, N(0, 1) on others), laplace:SCALE, student-t:DF,SCALE; or one for each pattern of parameter names, as in
    '*.weight=fan-in:1' '*.bias=gaussian:1'. docs/how-to/own-model.md"""
    batch_size: MaybeCount = None
    """Examples per gradient step."""
    micro_batch: MaybeCount = None
    """Examples per micro-batch: a batch's gradient is the sum over micro-batches, and BatchNorm normalises each by
    itself; default the whole batch, or a worker's share of it."""
    batchnorm: Annotated[str | None, Form(metavar="{keep,reestimate,shared,refuse}")] = None
    """BatchNorm's running statistics in samples. keep: those that the chain collected; reestimate: computed by a pass
    over the training data; shared: as keep, also for draws other than the chain's own parameters, such as θₐ (an
    ablation); refuse: an error. docs/reference/samplers.md"""
    precision: Annotated[str, Form(metavar="{fp32,tf32,bf16,fp64}")] = "fp32"
    """Arithmetic of the network; tf32: faster, less exact matrix products on GPUs; bf16: the forward pass in half
    precision, while parameters, sampler and loss stay in single precision. docs/concepts/execution.md says what is
    exact where."""
    compile: Annotated[str, Form(metavar="{none,default,cuda-graphs}")] = "none"
    """Compilation. default: torch.compile of the network's forward pass, or of the steps of a density or of a pack of
    MCLMC chains. cuda-graphs: the same, and a GPU runs the gradients of your own network as CUDA graphs, as it always
    does for built-in tasks. With both a resumed chain is not exact."""
    pack: Annotated[str, Form(metavar="WIDTH", check=pack_width)] = "none"
    """Chains that one worker steps as one vectorised program: a number, auto (up to 20, for small networks of linear
    layers), or none. It pays if a step is short. --resume needs the same width. docs/concepts/execution.md"""
    fast: bool = False
    """Let a GPU choose its kernels by speed, also kernels that are not reproducible: after a resume, samples have the
    same distribution, but not the same bytes."""
    exact: bool = True
    """Test your own task before its first run, and refuse it if a chain depends on state that checkpoints do not hold.
    With --no-exact it runs, marked as not exact on resume, and GPU kernels need not be reproducible, as with --fast."""
    init_from: Annotated[str | None, Form(objects=True, check=check_start)] = None
    """Where chains start. FILE: safetensors or a torch state dict, whose content is part of the chain's digest; in
    Python also a module or a state dict. deep-ensemble[:epochs,patience]: each chain starts at a member of a deep
    ensemble, which is trained first with early stopping (the default of mile). none: at random.
    docs/concepts/execution.md"""
    init_strict: bool = True
    """Require that init_from has all tensors of the network and no others. With --no-init-strict tensors that fit by
    name and shape are taken, the rest is initialised with seed 0, and the plan lists both."""
    sample_only: Patterns = ()
    """Shell patterns of the parameters to sample, e.g. 'fc.*'; the others stay at init_from, which must be given."""
    sampler_settings: Settings = ()
    """Further settings of the samplers, e.g. eta=4e-4 update=gibbs; docs/reference/samplers.md lists them."""
    schedule_settings: Settings = ()
    """Further settings of the schedules, e.g. sample_below=.01 or milestones=[.5,.75]."""
    task_settings: Settings = ()
    """Settings of the task, e.g. correlation=.5 for gaussian."""
    train_subset: MaybeCount = None
    """Number of training examples to use, with each class's share kept (image tasks); default all."""
    val_split: NotNegative = None
    """Share (below 1) or number of the training examples that is held out as the split val; default none; in a sweep .1
    if the task has no val."""
    seed: Natural = 0
    """Seed of all random streams."""
    repeats: Annotated[int | None, Form(check=partial(integer, least=1, most=MOST_REPEATS))] = None
    """Independent repetitions, for standard errors."""
    lanes: MaybeCount = None
    """Repeats of a density that one process computes together; default all of them."""


@dataclass(frozen=True, kw_only=True)
class _OfTask(Sampling):
    """Settings of chains, and the task that they sample."""

    task: Annotated[str, Form(objects=True, help=TASK)] = "digits"
    backend: Annotated[str, Form(metavar="{ray,process}")] = "ray"
    """Where chains and evaluators run. ray: in processes of Ray; process: as threads of the process that you started,
    on the CPU, one chain (or pack) at a time. The samples are the same; for small tasks process starts seconds
    earlier."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "process":
            for field in ("address", "object_store_memory", "accelerator_type"):
                value, allowed = getattr(self, field), "be left out with `backend=process`, which uses no Ray"
                require(value is None, field, value, allowed)
            for field in ("gpus_per_chain", "gpus_per_evaluator"):
                value, allowed = getattr(self, field), "be 0 with `backend=process`: its chains run on the CPU"
                require(not value, field, value, allowed)


@dataclass(frozen=True, kw_only=True)
class Run(_OfTask):
    """Sample one posterior: one task, one sampler, one schedule, several chains.

    Writes samples, an evaluation and a report to STORE/runs/NAME. --options FILE reads options from a JSON file, such
    as a sweep's best.json; the command line takes precedence.

    Example: raychains run --task digits --sampler csghmc --chains 2 --epochs 80
    """

    sampler: Annotated[
        str | None,
        Form(
            objects=True,
            check=check_name,
            help=f"The method: update rule, schedule and the paper's settings; default the task's. {SAMPLER}.",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        Form(objects=True, check=check_name, help=f"The step size's schedule; default the method's own. {SCHEDULE}."),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Fit(_OfTask):
    """Sample a posterior without tuning: choose method, step size and prior by held-out data, then sample on all data.

    Pilots, short runs of every candidate on a part of the training data, take at most a quarter of the budget. They are
    judged by the log density of the examples that are held out; the test split is never read for that. The result is a
    deep ensemble mixed with the best of them. Writes the plan and every decision to STORE/fits/NAME, and the run
    STORE/runs/NAME, whose options.json is for raychains run --options. docs/how-to/fit.md

    Example: raychains fit --task digits --budget 1000
    """

    what = "a fit"
    refused: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (
            *("lr", "final_lr", "epochs", "steps", "cycles", "exploration", "burn_in", "samples_per_cycle", "thinning"),
            *("momentum", "temperature", "temperature_ramp", "init_from", "sampler_settings", "schedule_settings"),
        ),
        "a fit chooses it",
    ) | {
        "weight_decay": "give `prior`, or leave the prior to the fit",
        "init_strict": "no file is a start",
        "sample_only": "no file is a start",
        "repeats": "one posterior is sampled",
        "lanes": "networks do not stack",
    }

    budget: MaybeCount = None
    """Epochs of all chains together, with those of the pilots (trial runs of the candidates); default 1000."""
    minutes: Positive = None
    """Time in minutes, in place of a budget: raychains times a few epochs and stores how many fit, as the budget."""
    folds: MaybeCount = None
    """Number of parts, each a sixth of the training data, that are held out in turn to judge the candidates; default 3
    with fewer than 600 examples, else 1. If the task has a split val, candidates are judged on that."""
    reference: bool = False
    """Also train, on top of the budget, one AdamW network and a deep ensemble of five. Each network stops early and has
    at most a fifth of the budget's epochs. The table `reference` has paired differences on the examples of the run's
    evaluation."""
    pack: Annotated[str, Form(metavar="WIDTH", check=pack_width)] = "auto"
    """As for raychains run; the default packs the chains of small networks of linear layers."""


@dataclass(frozen=True, kw_only=True)
class Compare(_OfTask):
    """Compare methods and numbers of chains, with the arms of cSG-MCMC's Table 2 or 4. For each sampler these are, for
    networks: n chains (--chains) of E epochs each, cyclical; n of E, decreasing; n of E/2, decreasing (in tables:
    E/2); and one of E, cyclical. For densities: n chains and one chain, each cyclical and decreasing. Any other
    --schedule gives an arm of n chains.

    A chain that belongs to two arms runs once. --options FILE reads options from a JSON file; the command line takes
    precedence.

    Example: raychains compare --task digits --sampler sgld sghmc --epochs 200 --repeats 5
    """

    sampler: Annotated[
        Sequence[str],
        Form(
            objects=True,
            check=check_name,
            help="Methods to compare; default the task's. A method with a fixed schedule, such as csgld, is run with "
            f"that schedule only. {SAMPLER}.",
        ),
    ] = ()
    schedule: Annotated[
        Sequence[str],
        Form(
            objects=True,
            check=check_name,
            help=f"Schedules whose arms are compared; default cyclical and decreasing. {SCHEDULE}.",
        ),
    ] = ("cyclical", "decreasing")
    preset: Annotated[str | None, Form(help=PRESET, check=check_preset)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("sampler", "schedule"):
            names = [getattr(one, "kind", one) for one in getattr(self, field)]
            if any(names.count(name) > 1 for name in names) or not (names or field == "sampler"):
                raise UserError(f"{field} must name each choice once, got {' '.join(map(str, names)) or 'nothing'}")


@dataclass(frozen=True, kw_only=True)
class Local(_OfTask):
    """Sample the posterior near trained networks and estimate their local learning coefficient (LLC).

    Chains start at a checkpoint w* (init_from) and have the target exp(−nβ·L(w) − (γ/2)‖w − w*‖²), L the mean loss over
    the n training examples. The LLC is λ̂ = nβ·(E[L(w)] − L(w*)): ½ for each direction of parameter space that the data
    determine, less for the others. Each checkpoint gives one arm for the sampled parameters and one for each of
    --groups. Results are in the run's report and in its tables llc, llc_chains, llc_trace, llc_examples, …;
    docs/how-to/local-learning-coefficient.md says what to look at.

    Example: raychains local --task mytask:make_task --init-from step100.pt step200.pt --epochs 200 --groups 'fc1.*'
    'fc2.*'
    """

    usual: ClassVar[Sequence[str]] = ("init_from", "burn_in", "batch_size")
    """Further options that the short help shows."""
    what = "a local posterior"
    refused: ClassVar[Mapping[str, str]] = {
        "temperature": "`nbeta` sets it",
        "temperature_ramp": "the temperature is constant",
        "exploration": "`burn_in` says how many epochs are not kept",
        "cycles": "the step size is constant",
        "samples_per_cycle": "`draws` says how many are kept",
        "final_lr": "the step size is constant",
        "schedule_settings": "the step size is constant",
        "sample_only": "`parameters` says which are sampled",
        "prior": "it is N(w*, T/γ), which `gamma` says",
        "lanes": "networks do not stack",
        "steps": "give `epochs`",
    }

    init_from: Annotated[Sequence[str], Form(metavar="FILE …", objects=True, check=check_file)] = ()  # type: ignore[assignment]
    """Checkpoints of the task's network, such as those of one training run. Each becomes an arm. Files as for raychains
    run, in Python also modules and state dicts."""
    gamma: Annotated[float, Form(check=at_least_0)] = 1.0
    """γ: strength of the pull to the checkpoint; with 0 nothing keeps the chains of a network near it."""
    nbeta: Positive = None
    """nβ: the number of examples times the inverse temperature; default n/ln n."""
    epsilon: Positive = None
    """ε: step size of SGLD, Δw = −(ε/2)·(nβ·∇L + γ(w − w₀)) + N(0, ε), w₀ the checkpoint; default 1e-4. You may give
    --lr = ε·nβ/2 (on the mean-loss scale) instead."""
    parameters: Patterns = ()
    """Shell patterns of the sampled parameters, such as 'fc.*'; the others stay at the checkpoint. Default all."""
    groups: Patterns = ()
    """Shell patterns of groups of parameters: further arms, each of which samples one group alone."""
    draws: MaybeCount = None
    """Kept draws of each chain, evenly spread after the burn-in; default 200, or as many as there are steps."""
    burn_in: MaybeNatural = None
    """Epochs at the start of each chain whose draws are not kept; unlike the burn-in of raychains run they have noise.
    Default a fifth."""
    # Samplers whose target is exp(−U/T) at any temperature T, with a step on the mean-loss scale.
    sampler: Annotated[str, Form(metavar="{sgld,psgld,sghmc}")] = "sgld"
    """Sampler of the chains; psgld scales each coordinate by the root mean square of its gradients (RMSProp), frozen
    after the burn-in."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.init_from:
            raise UserError("init_from must name a checkpoint to sample around, got none")
        require(self.pack in ("none", "auto"), "pack", self.pack, "be none: a prior at w* is not made for packs")
        require(isinstance(self.lr, int | float | None), "lr", self.lr, "be one number: there is one sampler")
        require(self.lr is None or self.epsilon is None, "epsilon", self.epsilon, "be left out beside `lr`")
        twice = [p for p in self.groups if list(self.groups).count(p) > 1 or (p,) == tuple(self.parameters)]
        require(not twice, "groups", " ".join(self.groups), "be different patterns, and others than `parameters`")


@dataclass(frozen=True, kw_only=True)
class Plan(Compare):
    """Estimate the cost of a comparison without running it.

    Prints arms and chains, gradient evaluations, device hours and their price, and bytes of samples, checkpoints and
    predictions. Chains that the store holds already cost nothing. Of the options about where a run is made, only the
    store and a chain's workers and GPUs matter.

    Example: raychains plan --preset imagenet-table3 --images-per-second 2500 --price 3
    """

    images_per_second: Positive = None
    """Gradient evaluations a second of one device, to estimate hours: measure it with benchmarks/chain.py --device
    cuda."""
    measured_on: Text = None
    """A run, STORE/runs/NAME: take the speed of one worker from its finished chains, instead of images_per_second."""
    price: Positive = None
    """Price of one device for an hour, in any currency."""
    devices: MaybeCount = None
    """Number of devices, to estimate days; default one for every worker of every chain."""


@dataclass(frozen=True, kw_only=True)
class Sweep(Run):
    """Try many settings and choose by the split val; the test split is never read. Each repeat of a point is one chain.

    Every point costs the same gradient evaluations. The metrics after each cycle are written to STORE/sweeps/NAME;
    raychains run --options STORE/sweeps/NAME/best.json then runs the best point. Settings that all points share are
    given as for raychains run. docs/how-to/sweeps.md

    Example: raychains sweep --task digits --epochs 80 --grid exploration=0,.25,.5 cycles=2,4,8
    """

    what = "a sweep"
    refused: ClassVar[Mapping[str, str]] = {
        "backend": "trials are Ray Tune's",
    } | dict.fromkeys(("evaluators", "gpus_per_evaluator", "keep_predictions"), "each trial evaluates its own samples")

    chains: Count = 1
    """Always 1: each repeat of a point is one chain."""
    grid: Annotated[Sequence[str] | Mapping[str, Any], Form(metavar="NAME=A,B,C …", lists=True, convert=entries)] = ()
    """Values of options; all combinations are run: exploration=0,.25,.5 cycles=2,4,8 lr=.1,.5. Any setting of chains
    may be varied, also sampler, schedule and further settings such as eta. Default, without --space: exploration (β)
    0,.25,.5,.75 × cycles (M) 2,4,8, leaving out an M for which the run has too few epochs."""
    space: Annotated[Sequence[str] | Mapping[str, Any], Form(metavar="NAME=RANGE …", lists=True, convert=entries)] = ()
    """Ranges to draw points from: lr=log:1e-3:1 exploration=uniform:0:.9 cycles=int:2:16, or lists as in a grid."""
    random: MaybeCount = None
    """Draw this many points of the space, independently."""
    optuna: MaybeCount = None
    """Let Optuna choose this many points of the space, each by the results so far; needs the extra
    raychains[optuna]."""
    metric: str = "nll"
    """The metric of the split val that decides. Classes: nll, error, brier, ece, ece_mass, classwise_ece, top5_error;
    regressions: nll, rmse, crps."""
    asha: bool = False
    """Stop the worse points early, by asynchronous successive halving: they are compared at equal epochs."""
    asha_grace: Annotated[float, Form(check=check_grace)] = 0.25
    """Share of the epochs before which no point is stopped."""
    asha_reduction: Annotated[float, Form(check=above_1)] = 3.0
    """With 3: at the share asha_grace of the epochs, and at 3, 9, … times as many epochs, only the best third of the
    points continues."""
    repeats: MaybeCount = None
    """Independent repetitions of every point, whose mean decides; default 1."""

    @cached_property
    def grid_values(self) -> Mapping[str, tuple[Any, ...]]:
        """The values of the grid's options."""
        return read_grid(self.grid)

    @cached_property
    def space_ranges(self) -> Mapping[str, Range]:
        """The ranges of the space's options."""
        return read_space(self.space)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.grid_values, self.space_ranges  # reading them refuses texts that are no lists or ranges
        require(self.chains == 1, "chains", self.chains, "be 1: a point of a sweep is one chain")
        if self.random is None and self.optuna is None:
            if self.space:
                raise UserError(
                    f"space must be left out without `random=N` or `optuna=N`, got {' '.join(self.space)!r}"
                )
            return
        if self.random is not None and self.optuna is not None:
            raise UserError(f"optuna must be left out beside `random`, got {self.optuna}: give one of the two")
        how = "random" if self.random is not None else "optuna"
        if self.grid:
            raise UserError(f"grid must be left out beside `{how}`, got {' '.join(self.grid)!r}: give it as a space")
        if not self.space:
            raise UserError(f"space must name what {how} draws, as in lr=log:1e-3:1 cycles=2,4,8, got nothing")
        integer(how, getattr(self, how), 1, MOST_POINTS)


@dataclass(frozen=True, kw_only=True)
class Evaluate(Common):
    """Evaluate a run's finished chains on a split of its task.

    Example: raychains evaluate runs/runs/digits-1a2b3c4d --views cycles without-chain --measures diversity diagnostics
    """

    what = "an evaluation"
    refused: ClassVar[Mapping[str, str]] = {
        "name": "results lie in the run's folder, those of another split in NAME-SPLIT",
        "store": "the run's path names it",
        "resume": "what is stored is not made again",
    } | dict.fromkeys(
        (
            *("gpus_per_chain", "workers_per_chain", "checkpoint_every", "max_failures", "max_preemptions"),
            "on_divergence",
        ),
        "no chain is run",
    )

    run: Stored
    """The run: STORE/runs/NAME."""
    split: Text = None
    """The task's split, such as test or train; default the run's own."""
    views: Names = ()
    """Parts of each arm's samples to evaluate by themselves too: chains, cycles, stages, samples, variables (θ, θₐ),
    without-chain (all but one chain), first:N (the N samples that come first). A later call replaces the views of an
    earlier one."""
    weights: Names = ()
    """Weightings of samples besides the equal one: harmonic (cycles by their training likelihoods, cSG-MCMC's appendix
    F), stacking (on the split val), truncated (densities: by the posterior's mass that each cycle explored)."""
    measures: Annotated[Sequence[str], Form(help=MEASURES)] = ()
    reference: Text = None
    """Reference of the measure fidelity. hmc: draws of this posterior by Hamiltonian Monte Carlo, in minutes for small
    networks. Or a file of probabilities: .npy, .npz or .csv [examples, classes] in the split's order. Default, on
    CIFAR-10's split test: HMC's probabilities in the data root."""
    against: Text = None
    """File of predictions of your own on the split, .npy, .npz or .csv: probabilities [examples, classes], or of a
    regression the means and in the last column the standard deviation, [examples, outputs + 1]. The measure "against"
    shows how much better the run predicts, with intervals."""


@dataclass(frozen=True, kw_only=True)
class Export(Options):
    """Write an arm's samples as one file, an ensemble for use without store, data and Ray.

    Load it with raychains.PosteriorPredictive.load(FILE): docs/how-to/export.md.

    Example: raychains export runs/runs/digits-1a2b3c4d --to digits.safetensors
    """

    run: Stored
    """The run: STORE/runs/NAME."""
    arm: Text = None
    """The arm's name; default the first."""
    group: Natural = 0
    """The group of repeats, counted from 0; for networks each repeat is a group."""
    to: Text = None
    """The file, a new one; default NAME.safetensors in the current folder."""
    first: MaybeCount = None
    """Number of samples. They are taken in turn: the first of each chain, then the second of each chain, …; default
    all."""
    dtype: Annotated[str | None, Form(metavar="{fp32,bf16,fp16}")] = None
    """Round tensors to this dtype; default the samples' own."""
    data_root: DataRoot = None
    """Folder with the data sets, to check that the task still has the same data; default as for run."""
    trust: bool = False
    """Import the modules of your own tasks, samplers and schedules that the run names, which runs their code. Without
    it no such module is imported, and runs of your own tasks cannot be exported."""


@dataclass(frozen=True, kw_only=True)
class Serve(Options):
    """Answer requests for predictions over HTTP by Ray Serve, from an exported file or from a run that may still go on.

    Needs the extra serve: pip install "raychains[serve]". HTTP is not protected: everybody who reaches the port can
    send requests. docs/how-to/serve.md

    Example: raychains serve runs/runs/digits-1a2b3c4d --port 8000
    """

    source: Stored
    """A file of raychains export, or a run: STORE/runs/NAME. The server keeps the samples that it finds when it
    starts."""
    arm: Text = None
    """Name of a run's arm; default its first."""
    group: Natural = 0
    """The group of repeats, counted from 0; for networks each repeat is a group."""
    first: MaybeCount = None
    """Number of a run's samples. They are taken in turn: the first of each chain, then the second of each chain, …;
    default all."""
    host: str = "127.0.0.1"
    """Address to listen at. 127.0.0.1: only this machine can connect; 0.0.0.0: every machine can, without a
    password."""
    port: Annotated[int, Form(check=partial(integer, least=1, most=65535))] = 8000
    """Port to listen at."""
    name: str = "raychains"
    """Name of Ray Serve's application. It replaces an application of this name on the cluster."""
    route_prefix: Annotated[str, Form(metavar="PATH")] = "/"
    """URL path of this application. Two applications on one cluster need different paths."""
    replicas: Count = 1
    """Processes that hold the ensemble."""
    cpus_per_replica: Count = 1
    """CPU cores, and torch threads, of each replica."""
    gpus_per_replica: Annotated[float, Form(check=at_least_0)] = 0.0
    """GPUs of each replica; with a fraction several replicas share a GPU, but its memory is not divided."""
    max_batch_size: Count = 64
    """Largest number of inputs in one batch, of one request or of several. A request may not have more."""
    batch_wait: Duration = 0.005
    """Time that a request waits for others to be predicted with it, such as 0.005 or 1s."""
    max_body: Count = 16_777_216
    """Most bytes of a request's body."""
    address: Text = None
    """Ray cluster to join, as for run; default: Ray is started on this machine."""
    object_store_memory: MaybeCount = None
    """As for run."""
    data_root: DataRoot = None
    """Folder with a run's data sets, to check that the task still has the same data; default as for run."""
    trust: bool = False
    """Import the modules of your own tasks, samplers, schedules and networks that the run or the file names, which runs
    their code. Without it no such module is imported."""


@dataclass(frozen=True, kw_only=True)
class Report(Options):
    """Draw the report of a run or a sweep again from its stored results.

    Example: raychains report runs/runs/digits-1a2b3c4d --compare runs/runs/digits-5e6f7a8b
    """

    run: Stored
    """The run: STORE/runs/NAME; or a sweep: STORE/sweeps/NAME."""
    compare: Names = ()
    """Further runs of the task, evaluated on the same split: the page compare-OTHER.html in the run's folder shows them
    side by side."""
    trust: bool = False
    """Import the modules of your own tasks, samplers and schedules that the run names, which runs their code. Without
    it no such module is imported, and figures that need your schedule are left out."""


@dataclass(frozen=True, kw_only=True)
class Status(Options):
    """Report the progress of a run or a sweep from its store, from any terminal that can read it.

    Shows drivers, chains, the budget, what is left, and how old the information on running chains is.

    Example: raychains status s3://bucket/prefix/runs/digits-1a2b3c4d --watch 10s
    """

    path: Stored
    """STORE/runs/NAME, STORE/sweeps/NAME, or STORE for a list of all of them."""
    watch: MaybeDuration = None
    """Print it again every so many seconds, or 10s, 1min, until the run ends."""
    chains: Count = 30
    """Largest number of chains to show; failed and running ones come first."""
    json: bool = False
    """Print one JSON object with everything, for machines."""


@dataclass(frozen=True, kw_only=True)
class Prepare(Options):
    """Prepare an image set for streaming: ILSVRC's tar files as they are distributed, or any folder of classes.

    Writes parquet shards of JPEG bytes and, last, a manifest. The same command continues an interrupted one. The tasks
    imagenet-* and imagefolder-* train on it.

    Example: raychains prepare imagenet --from /raw/ILSVRC2012 --to s3://bucket/data/imagenet
    """

    set: Stored
    """Name by which tasks find the set in the data root: imagenet for the tasks imagenet-*."""
    source: Annotated[str, Form(flag="from", metavar="DIR")]
    """Folder with ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, or with
    train/CLASS/* and val/CLASS/*; every node must see it."""
    to: Text = None
    """Target of the set: a folder, or a URI that pyarrow knows; default a folder of its name in the data root."""
    shards: MaybeCount = None
    """Files per split; default one for every 2,048 pictures."""
    row_group: Count = 64
    """Pictures per row group, which are read at once; training mixes several row groups."""
    seed: Natural = 0
    """Seed of the order in which pictures are stored."""
    skip_damaged: bool = False
    """Leave damaged pictures out. Otherwise they are listed and the set is refused."""
    address: Text = None
    """Ray cluster to join, as for run."""
    object_store_memory: MaybeCount = None
    """As for run."""


@dataclass(frozen=True, kw_only=True)
class InitTask(Options):
    """Write an example task with comments. It runs unchanged; replace its model, data and likelihood by yours.

    Example: raychains init-task mytask.py
    """

    file: Stored
    """A new Python file. Run raychains in the folder of this file."""


@dataclass(frozen=True, kw_only=True)
class InitDensity(Options):
    """Write an example log density with comments. It runs unchanged; replace density, start and data by yours.

    Example: raychains init-density mydensity.py
    """

    file: Stored = "mydensity.py"
    """A new Python file. Run raychains in the folder of this file."""


@dataclass(frozen=True, kw_only=True)
class Reproduce(Common):
    """Run published tables and figures and show our numbers beside the papers', with the differences and their reasons.

    A chain that several of them need, or that the store has, is not run again. Tables, figures, the verdict on each
    claim, and an index page are written to STORE/reproduce/SCALE. docs/how-to/reproduce.md

    A file such as mytable.py declares a table of your own. docs/how-to/own-table.md

    Example: raychains reproduce table4 fig2 fig5 --scale cpu
    """

    what = "a reproduction"
    refused: ClassVar[Mapping[str, str]] = {"name": "every comparison has its own"}

    names: Annotated[Sequence[str], Form(positional=True)] = ()
    """Which: all, names such as table2 fig3c emcmc-fig2 theorem1, or files of your own such as mytable.py
    (docs/how-to/own-table.md); --list shows them."""
    scale: Annotated[str, Form(metavar="{smoke,cpu,gpu,paper}")] = "cpu"
    """smoke: a test of the code in minutes on made-up data; cpu: smaller networks or less data, for two cores; gpu: the
    papers' networks on one GPU; paper: the published settings. A table has results of one scale only."""
    list: bool = False
    """List tables and figures with the data they need and the estimated hours at the scales cpu, gpu and paper. Nothing
    is run."""
    dry_run: bool = False
    """Print the chains that would be run, their gradient evaluations, and how many are saved by chains that several
    tables share. Nothing is run."""
    max_hours: Positive = None
    """Stop after this many hours; the same command continues."""
    to: Text = None
    """Folder or URI for tables, figures and pages; default STORE/reproduce/SCALE."""


GROUPS = {
    "What to sample": "task preset sampler schedule sampler_settings schedule_settings task_settings train_subset "
    "val_split init_from init_strict sample_only seed",
    "How": "lr final_lr momentum temperature temperature_ramp weight_decay prior cycles exploration burn_in "
    "samples_per_cycle thinning batch_size micro_batch batchnorm precision compile pack fast exact",
    "How long, and how many": "epochs steps chains repeats lanes",
    "Where it runs": "backend address namespace cpus_per_chain gpus_per_chain workers_per_chain accelerator_type "
    "concurrent slot_timeout stall_timeout evaluators gpus_per_evaluator object_store_memory checkpoint_every "
    "max_failures max_preemptions on_divergence",
    "Data and output": "store name resume data_root bins keep_predictions callback log tensorboard",
}
"""Options that commands share, by the headings of help texts."""
USUAL = [
    "task",
    "preset",
    "sampler",
    "schedule",
    "lr",
    "temperature",
    "cycles",
    "exploration",
    "epochs",
    "steps",
    "chains",
    "repeats",
    "seed",
    "address",
    "gpus_per_chain",
    "store",
    "name",
    "resume",
    "data_root",
    "callback",
]
"""Those of them that the short help shows."""
