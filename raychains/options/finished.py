"""Options of the commands on finished runs, data sets and new tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from raychains.options.common import Common
from raychains.options.kinds import Integer, Names, Text


@dataclass(frozen=True, kw_only=True)
class Evaluate(Common):
    """Evaluate a run's finished chains on a split of its task.

    Example: raychains evaluate runs/runs/digits-1a2b3c4d --views cycles without-chain --measures diversity diagnostics
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    split: Text = None
    """The task's split, e.g. test or train; default the run's own."""
    views: Names = ()
    """Parts of each arm's samples to evaluate by themselves too: chains, cycles, stages, samples, variables (θ, θₐ),
    without-chain (all but one chain), first:N (the N samples that come first)."""
    weights: Names = ()
    """How samples are weighted besides equally: harmonic (cycles by their training likelihoods, cSG-MCMC's appendix F),
    stacking (on the split val), truncated (densities: by the posterior's mass that each cycle explored)."""
    measures: Names = ()
    """Further analyses: calibration, ood, corrupted, agreement, diversity, interpolation, diagnostics, reference, flatness.
    Each has tables and figures of its own in the run's folder and report: docs/evaluation.md."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write an arm's samples as one file, an ensemble for use without store, data and Ray.

    Load it with raychains.PosteriorPredictive.load(FILE): docs/deploy.md.

    Example: raychains export runs/runs/digits-1a2b3c4d --to digits.safetensors
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    arm: Text = None
    """The arm's name; default the first."""
    group: int = 0
    """Which group of repeats, from 0."""
    to: Text = None
    """The file, a new one; default NAME.safetensors in the current folder."""
    first: Integer = None
    """Take this many samples, the first draws of all chains first; default all."""
    dtype: Annotated[str | None, arg(metavar="{fp32,bf16,fp16}", help_behavior_hint="")] = None
    """What tensors are rounded to; default the samples' own."""
    data_root: Text = None
    """Folder with the data sets, which the task's identity is checked against; default as for run."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw a run's report again from its stored results.

    Example: raychains report runs/runs/digits-1a2b3c4d --compare runs/runs/digits-5e6f7a8b
    """

    run: Positional[str]
    """The run: STORE/runs/NAME."""
    compare: Names = ()
    """Further runs of the task, evaluated on the same split: laid beside it on a page compare-OTHER.html in its folder."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """How far a run or a sweep is, from what lies in its store: from any terminal that can read it.

    Shows drivers, chains, budget and what is left; how old what is known of running chains is, too.

    Example: raychains status s3://bucket/prefix/runs/digits-1a2b3c4d --watch 10s
    """

    path: Positional[str]
    """STORE/runs/NAME, STORE/sweeps/NAME, or STORE for a list of all of them."""
    watch: Annotated[float | str | None, arg(metavar="TIME", help_behavior_hint="")] = None
    """Look again every so many seconds, or 10s, 1min, until it ends."""
    chains: int = 30
    """Chains that are shown at most; failed and running ones come first."""
    json: bool = False
    """Print one JSON object with everything, for machines."""


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Prepare an image set for streaming: ILSVRC's tar files as they are distributed, or any folder of classes.

    Writes parquet shards of JPEG bytes and, last, a manifest. What is interrupted goes on with the same command. The tasks
    imagenet-* and imagefolder-* learn from it.

    Example: raychains prepare imagenet --from /raw/ILSVRC2012 --to s3://bucket/data/imagenet
    """

    set: Positional[str]
    """The set's name, by which tasks find it in the data root: imagenet for the tasks imagenet-*."""
    source: Annotated[str, arg(name="from", metavar="DIR")]
    """Folder with ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz, or with train/CLASS/*
    and val/CLASS/*; every node must see it."""
    to: Text = None
    """Where the set goes: a folder, or a URI that pyarrow knows; default a folder of its name in the data root."""
    shards: Integer = None
    """Files per split; default one for every 2,048 pictures."""
    row_group: int = 64
    """Pictures that are read at once, and mixed with those of others."""
    seed: int = 0
    """Seed of the order in which pictures are stored."""
    skip_damaged: bool = False
    """Leave damaged pictures out, instead of refusing the set with their names."""
    address: Text = None
    """Ray cluster to join, as for run."""
    object_store_memory: Integer = None
    """As for run."""


@dataclass(frozen=True, kw_only=True)
class InitTask:
    """Write a commented task that runs as it is: change its model, its data and its likelihood into yours.

    Example: raychains init-task mytask.py
    """

    file: Positional[str]
    """A new Python file; the folder that it lies in is where to run it."""
