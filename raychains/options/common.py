"""Options that many commands share: where results lie and work runs; what chains are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from raychains.options.kinds import Duration, Integer, Names, Number, Patterns, Settings, Text


@dataclass(frozen=True, kw_only=True)
class Common:
    """Where results lie and where the work runs."""

    store: str = "runs"
    """Folder of the run store, or any URI that pyarrow knows (s3://bucket/prefix)."""
    name: Text = None
    """Name of the run; by default the task and the first digits of the plan's digest, so one plan has one name."""
    resume: bool = False
    """Continue the run of this name, if there is one: finished chains are not run again, stopped ones go on."""
    data_root: Text = None
    """Folder with the data sets (torchvision's layout); default RAYCHAINS_DATA, else a folder of the user's cache."""
    address: Text = None
    """Ray cluster to join, HOST:PORT; default RAY_ADDRESS, else Ray is started on this machine."""
    namespace: str = "raychains"
    """Ray's namespace, in which the actors have their names: raychains/NAME/chain-worker-0-1a2b3c."""
    cpus_per_chain: int = 1
    """CPU cores per chain, which are also its torch threads."""
    gpus_per_chain: Number = None
    """GPUs per chain: 1/k shares one between k chains; default 1 where Ray has GPUs, else 0. 8 is eight workers of one each."""
    workers_per_chain: Integer = None
    """Processes that run each chain together, each with cpus_per_chain and at most one GPU; the batch is divided among them.
    Samples do not depend on their number, given micro_batch."""
    accelerator_type: Text = None
    """Run chains, and evaluators with a share of a GPU, on GPUs of this type only, named as Ray does: A100, H100, T4."""
    concurrent: Integer = None
    """Most chains that run at once; default as many as the cluster holds. On a cluster that was joined, workers for so many
    are asked for even if no node has room yet, so that an autoscaler adds nodes."""
    slot_timeout: Annotated[float | str | None, arg(metavar="TIME", help_behavior_hint="")] = None
    """How long a run of which no chain runs waits for room, in seconds or as 5min, 1h, before it ends, to be resumed;
    default 15min where no node has it, and without end where others hold it."""
    evaluators: Integer = None
    """Evaluation workers; default one for every two slots."""
    decoders: Integer = None
    """Ray actors of one CPU each that decode prepared sets for all chains; default none, but processes beside each chain."""
    gpus_per_evaluator: Number = None
    """GPUs per evaluation worker, 1/k or whole ones, which chains then do without; default 0: it predicts on the CPU."""
    checkpoint_every: Duration = 60.0
    """Time between checkpoints of each chain, in seconds or as 60s, 5min, 1h; ends of cycles have checkpoints as well."""
    max_failures: int = 3
    """Losses of its worker in a row, without progress, that a chain survives; also how often on_divergence restarts it."""
    on_divergence: Annotated[str, arg(metavar="{stop,restart-cycle,drop-chain}")] = "stop"
    """What becomes of a chain whose loss or parameters turn non-finite: stop gives it up, and its arms have no result;
    restart-cycle goes back to the start of its cycle with fresh noise; drop-chain evaluates its arms without it."""
    bins: int = 15
    """Bins of calibration errors and reliability diagrams; 8 is ATMC's number."""
    keep_predictions: Annotated[str, arg(metavar="{auto,all,none}")] = "auto"
    """Whether samples' predictions stay in the store, for further measures without a forward pass; auto: up to 1 GB."""
    object_store_memory: Integer = None
    """Bytes of Ray's object store when Ray is started here; default 1 GB or 20 % of the memory, whichever is less."""
    listen: Names = ()
    """Who hears what happens besides the terminal: jsonl (events in STORE/runs/NAME/events), tensorboard, ray-metrics,
    wandb, mlflow (the last two are extras). docs/observability.md says what each is told."""
    log: Text = None
    """A local file to append every event to, one JSON object per line."""
    tensorboard: Text = None
    """Local folder of TensorBoard's files, which are written when it is given; default with --listen tensorboard:
    STORE/runs/NAME/tensorboard where the store is a local folder."""


@dataclass(frozen=True, kw_only=True)
class Sampling(Common):
    """Settings of the chains that run and compare share."""

    epochs: Integer = None
    """Passes over the data of each chain (tasks with data)."""
    steps: Integer = None
    """Gradient steps of each chain (densities)."""
    chains: int = 4
    """Parallel chains."""
    cycles: Integer = None
    """M: how often a cyclical step size restarts."""
    exploration: Number = None
    """β in [0, 1): share of each cycle spent without noise."""
    samples_per_cycle: Integer = None
    """Samples kept at the end of each cycle."""
    thinning: Integer = None
    """Steps between kept samples; default an epoch (1 for densities)."""
    lr: Number = None
    """Initial step size on the mean-loss scale, as in torch.optim.SGD."""
    final_lr: Number = None
    """Step size at the last step of a linear or exponential schedule; default a hundredth of lr."""
    burn_in: Integer = None
    """Epochs (steps of a density) without noise at the start of the run, or of each cycle; instead of β."""
    temperature_ramp: Number = None
    """Share of the run (or cycle) over which T grows linearly from 0 once the noise sets in; default 0, at once."""
    momentum: Number = None
    """Momentum m in [0, 1) of the methods that have it; the friction is 1 − m."""
    temperature: Number = None
    """Posterior temperature T: 1 samples the posterior, 0 optimises."""
    weight_decay: Number = None
    """Strength λ of the Gaussian prior N(0, 1/(Nλ)) on the mean-loss scale."""
    batch_size: Integer = None
    """Examples per gradient step."""
    micro_batch: Integer = None
    """Examples of the pieces that a batch's gradient is added up from, each normalised by itself in BatchNorm; default the
    whole batch, or a worker's share of it."""
    batchnorm: Text = None
    """BatchNorm's running statistics in samples: keep the chain's, reestimate by a pass over the training data, shared (the
    chain's for draws of other variables, too: an ablation), or refuse."""
    precision: Annotated[str, arg(metavar="{fp32,tf32,bf16,fp64}")] = "fp32"
    """Arithmetic of the network: tf32 rounds factors of products (GPUs), bf16 runs the forward pass in half precision;
    parameters, sampler and loss stay in single precision then. docs/execution.md says what is exact where."""
    compile: Annotated[str, arg(metavar="{none,default,cuda-graphs}")] = "none"
    """torch.compile of the network's forward pass, with CUDA graphs on a GPU; the chain is then not exact on resume."""
    fast: bool = False
    """Let a GPU tune its kernels and use those that are not reproducible: the same law, other bytes on resume."""
    init_from: Text = None
    """File at which all chains start: safetensors, or a torch state dict (its content is part of the chain's digest)."""
    sample_only: Patterns = ()
    """Shell patterns of the parameters to sample, e.g. 'fc.*'; the others stay at init_from, which is needed."""
    sampler_settings: Settings = ()
    """Further settings of the samplers, e.g. eta=4e-4 update=gibbs; docs/samplers.md lists them."""
    schedule_settings: Settings = ()
    """Further settings of the schedules, e.g. sample_below=.01 or milestones=[.5,.75]."""
    task_settings: Settings = ()
    """Settings of the task, e.g. correlation=.5 for gaussian."""
    train_subset: Integer = None
    """Training examples that are used, each class's share kept (image tasks); default all."""
    val_split: Number = None
    """Share (below 1) or number of the training examples that is held out as the split val; default none."""
    seed: int = 0
    """Seed of all random streams."""
    repeats: Integer = None
    """Independent repetitions, for standard errors."""
    lanes: Integer = None
    """Repeats that one process stacks (densities); default all of them."""
