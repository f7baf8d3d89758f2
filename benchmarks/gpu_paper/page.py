"""Make the page of cSG-MCMC's Table 1 at scale gpu from chains that `benchmarks.gpu_paper.chain` sampled elsewhere.

    python -m benchmarks.gpu_paper.page gpu-paper --to docs/results/gpu

Reads METHOD-REPEAT.json and METHOD-REPEAT.npy, computes error and NLL of the predictions again, and writes the
experiment's folder below --to: the published numbers beside ours, and both metrics against the number of samples.
Chains that an earlier call put there stay. Needs the whole of raychains and CIFAR-10 in the data root.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_paper.chain import DATA, EPOCHS, METHODS, REPEATS, measured
from raychains.core.config import Compare
from raychains.core.data_root import rooted
from raychains.core.errors import UserError
from raychains.core.spec import ChainSpec
from raychains.papers import pages
from raychains.papers.completed_run import cell
from raychains.papers.csgmcmc import cifar, table1
from raychains.papers.pages import Folder
from raychains.papers.reproduce import commit
from raychains.planning import gradient_evaluations
from raychains.planning.presets.arms import arms_of
from raychains.store import Storage

SCALE, TRAIN_IMAGES = "gpu", 50_000
EXPERIMENT = table1.STUDY
TABLES = ("cells", "nll", "growth", "chains")


def table1_chains() -> dict[str, tuple[str, int]]:
    """Return row and repeat of every chain of the table at scale gpu, by digest."""
    preset = table1.preset(DATA, SCALE)
    arms = arms_of(preset, Compare()).comparison.arms
    return {
        chains[0].digest: (variant.name, repeat)
        for variant, arm in zip(preset.variants, arms, strict=True)
        for repeat, chains in enumerate(arm.chains)
    }


def tables_of(about: Mapping[str, Any], predictions: np.ndarray) -> dict[str, list[dict[str, Any]]]:
    """Return `TABLES` of one chain, from its JSON file and its predictions [samples, images, classes]."""
    row, repeat, found = about["method"], about["repeat"], measured(predictions)
    last = {"digests": about["digest"], "samples": len(found)}
    error, nll = (
        [cell(DATA, row, table1.ERROR, repeat, value, **last)] for value in (100 * found[-1]["error"], found[-1]["nll"])
    )
    where = {"part": DATA, "row": row, "repeat": repeat}
    spec = ChainSpec.from_json(about["spec"])
    short = about["train_images"] < TRAIN_IMAGES or spec.steps < EPOCHS * spec.steps_per_epoch
    chain = {"digest": about["digest"], "device": about["environment"]["device"], "seconds": about["seconds"]}
    chain |= {"images_per_second": about["images_per_second"], "gradients": gradient_evaluations(spec)}
    chain |= {
        "short": f"{spec.steps // spec.steps_per_epoch} epochs of {about['train_images']:,} images" if short else ""
    }
    growth = [{**where, **one, "error": 100 * one["error"]} for one in found]
    return {**cifar.as_tables(error, nll), "growth": growth, "chains": [where | chain]}


def read(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    """Return a chain's JSON file and its predictions.

    Raises:
        UserError: one cannot be read, they do not belong together, or the chain is not done.
    """
    try:
        about = json.loads(path.read_bytes())
        predictions = np.load(path.with_suffix(".npy"), allow_pickle=False)
        stored = [one["nll"] for one in about["measured"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"results: {path} or its .npy file cannot be read: {error}") from error
    if not about["done"]:
        raise UserError(f"results: the chain of {path} is not done, it has {len(stored)} samples: run it to its end")
    if not np.allclose([one["nll"] for one in measured(predictions)], stored, rtol=1e-6):
        raise UserError(f"results: {path.with_suffix('.npy')} does not hold the predictions of {path}")
    return about, predictions


def write(paths: Sequence[Path], to: str) -> str:
    """Write the page of chains, beside those that are there; return where it lies.

    Raises:
        UserError: a file that is none of a finished chain, or a folder of other results.
    """
    folder = Folder(Storage(to), "", EXPERIMENT.name)
    earlier = folder.about()
    if earlier is not None and (earlier["scale"] != SCALE or "chains" not in earlier["tables"]):
        raise UserError(
            f"to must be a folder for these chains alone, got {to!r}: it holds results of raychains reproduce"
        )
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    environments: dict[str, Any] = {}
    if earlier is not None:
        tables |= {name: table.to_dict("records") for name, table in folder.stored().items()}
        of = earlier["environments_of"].items()
        environments = {digest: earlier["environments"][number] for digest, [number] in of}
    for path in paths:
        about, predictions = read(path)
        own = (about["method"], about["repeat"])
        for name, rows in tables_of(about, predictions).items():
            tables[name] = [one for one in tables[name] if (one["row"], one["repeat"]) != own] + rows
        environments[about["digest"]] = about["environment"]
    kept = [one["digest"] for one in tables["chains"]]
    known = [*map(json.loads, dict.fromkeys(json.dumps(environments[digest], sort_keys=True) for digest in kept))]
    for name, rows in tables.items():
        folder.write_table(name, rows)
    folder.write_about(
        {
            "experiment": EXPERIMENT.name,
            "scale": SCALE,
            "revision": EXPERIMENT.revision,
            "commit": commit(),
            "parts": _parts(tables["chains"]),
            "tables": sorted(tables),
            "environments": known,
            "environments_of": {digest: [known.index(environments[digest])] for digest in kept},
        }
    )
    pages.write(EXPERIMENT, folder)
    pages.write_index(Storage(to), "", SCALE)
    return folder.location("index.html")


def _parts(chains: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the parts' states for about.json."""
    planned, labels = table1_chains(), table1.NAMES
    parts: dict[str, dict[str, Any]] = {}
    for part in EXPERIMENT.parts:
        if part.name != DATA:
            parts[part.name] = {"status": "not run", "reason": "these chains are of CIFAR-10 alone"}
            parts[part.name] |= {"chains": [], "gradients": 0, "chain_seconds": 0.0, "seconds": 0.0}
            continue
        some = [f"{labels[one['row']]}, repeat {one['repeat'] + 1} of {REPEATS}" for one in chains]
        why = [f"{len(chains)} of {len(planned)} chains: {'; '.join(some)}"] if len(chains) < len(planned) else []
        short = [f"{labels[one['row']]}: {one['short']}" for one in chains if one["short"]]
        why += [f"SHORTENED, which says nothing about the paper: {'; '.join(short)}"] if short else []
        other = [labels[one["row"]] for one in chains if not one["short"] and one["digest"] not in planned]
        why += [f"not the table's own chain: {'; '.join(other)}"] if other else []
        seconds = round(sum(one["seconds"] for one in chains), 1)
        parts[part.name] = {"status": "unfinished" if why else "done", "reason": ". ".join(why)}
        parts[part.name] |= {"chains": sorted(one["digest"] for one in chains)}
        parts[part.name] |= {"gradients": sum(int(one["gradients"]) for one in chains)}
        parts[part.name] |= {"chain_seconds": seconds, "seconds": seconds}
    return parts


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder that benchmarks.gpu_paper.chain wrote")
    parser.add_argument("--to", default="docs/results/gpu", help="where the page goes; default: docs/results/gpu")
    parser.add_argument("--data-root", help="where cifar-10-batches-py lies; default: RAYCHAINS_DATA")
    args = parser.parse_args(argv)
    try:
        named = (args.results / f"{method}-{repeat}.json" for method in METHODS for repeat in range(REPEATS))
        paths = [path for path in named if path.is_file()]
        if not paths:
            raise UserError(f"results must be a folder with METHOD-REPEAT.json files, got {str(args.results)!r}")
        with rooted(args.data_root):
            print(write(paths, args.to))
    except UserError as error:
        print(f"gpu-paper: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
