"""Sample one chain of cSG-MCMC's Table 1 on CIFAR-10; measure error and NLL of its first 1, 2, … samples.

    python -m benchmarks.gpu_paper.chain --device cuda --data-root data --out results

ResNet-18, 200 epochs and the other settings of `raychains reproduce table1 --scale gpu`, whose chain this is: in bf16,
with recorded gradients, not compiled (compiled steps would be another chain's). A CPU, which is slow in bf16, has fp32
and shows only that everything runs. Neither Ray nor pyarrow nor pandas is needed.

After every sample two files are rewritten: METHOD-REPEAT.json (settings, environment, losses, seconds, error, NLL) and
METHOD-REPEAT.npy (the samples' log-probabilities of the test images, float32 [samples, images, classes]). The same
command continues from the last checkpoint, which is written every minute and at the end: after a kill, and where
--minutes were over. Exit status: 0 when the chain is done, 3 when the minutes were over, 2 for a wrong argument.

`python -m benchmarks.gpu_paper.page results` makes the table's page of these files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_paper import replacing
from raychains.chain.chain import Chain
from raychains.core.config import Compare
from raychains.core.data_root import rooted
from raychains.core.errors import RaychainsError, UserError, require
from raychains.core.sample import Progress, Sample
from raychains.core.spec import ChainSpec
from raychains.data import sets
from raychains.evaluation.classification import reduce_classification
from raychains.evaluation.evaluation import Array
from raychains.planning.presets.arms import arms_of
from raychains.planning.presets.named import Preset, Variant

DATA, TASK, EPOCHS, REPEATS = "cifar10", "cifar10-resnet18", 200, 2
METHODS = ("csghmc", "sghmc", "csgld", "sgld")
"""The methods that sample; sghmc and sgld have a decreasing step size."""
OPTIONS: Mapping[str, Any] = {"repeats": REPEATS, "seed": 5, "chains": 1}
"""Those of table1 at scale gpu; all others are the task's defaults."""
CYCLES = 4
"""Of table1's cyclical methods at scale gpu."""
SHORT: Mapping[str, Mapping[str, Any]] = {
    "cyclical": {"cycles": 2, "exploration": 0.5, "thinning": 1, "lr": 0.05},
    "decreasing": {"schedule_settings": ("samples=4",), "thinning": 1, "lr": 0.05},
}
"""Options of a chain of fewer epochs: samples a step apart, not an epoch, and a step size that it learns something
with."""
CHECKPOINT_SECONDS = 60.0
EPOCHS_A_LINE = 10
UNFINISHED = 3
"""Exit status of a call whose minutes were over."""


def spec(
    method: str, repeat: int = 0, *, precision: str = "bf16", epochs: int = EPOCHS, subset: int | None = None
) -> ChainSpec:
    """Return the method's chain in a repeat, on all training images or so many.

    Raises:
        UserError: a setting out of range.
    """
    kind = "cyclical" if method.startswith("c") else "decreasing"
    options: dict[str, Any] = {"epochs": epochs, "precision": precision, **OPTIONS}
    if kind == "cyclical":
        options["cycles"] = CYCLES
    if epochs != EPOCHS:
        options |= SHORT[kind]
    if subset is not None:
        options["train_subset"] = subset
    preset = Preset(
        name="table1",
        about="",
        task=TASK,
        schedule="decreasing",
        options=options,
        variants=[Variant(method, "", method)],
    )
    [arm] = arms_of(preset, Compare()).comparison.arms
    return arm.chains[repeat][0]


def measured(predictions: Array) -> list[dict[str, float]]:
    """Return error (a share) and NLL (nats) of the first 1, 2, … samples on CIFAR-10's first test images.

    Args:
        predictions: log-probabilities [samples, images, classes].
    """
    images = predictions.shape[1]
    labels = sets.load(DATA, "test").labels.numpy()[:images]
    sums = reduce_classification(predictions, labels, bins=1).curves  # which have no bins
    pairs = zip((sums["error"] / images).tolist(), (sums["nll"] / images).tolist(), strict=True)
    return [{"samples": n, "error": error, "nll": nll} for n, (error, nll) in enumerate(pairs, start=1)]


class PaperChain:
    """A chain and its results so far, resumed from its checkpoint where there is one.

    Args:
        chain: the chain at its beginning.
        test_images: how many of the test images are predicted, the first ones.
        checkpoint: its file.
        out: where results are written, without the ending.
        about: further entries of the JSON file.
    """

    def __init__(self, chain: Chain, test_images: int, checkpoint: Path, out: Path, about: Mapping[str, Any]) -> None:
        self.chain, self.checkpoint, self.out = chain, checkpoint, out
        test: Any = chain.task.splits()["test"]
        test.inputs = test.inputs[:test_images]
        test.to(chain.device)
        self._test = test
        self._saved = time.monotonic()
        self.predictions: list[Array] = []
        self.told: dict[str, Any] = {"samples": [], "epochs": [], "seconds": 0.0, "epoch_seconds": 0.0}
        if checkpoint.exists():
            stored = torch.load(checkpoint, weights_only=True)
            if stored["state"]["digest"] != chain.spec.digest:
                raise UserError(
                    f"checkpoint {checkpoint} is of another chain: remove it, or give --checkpoints a folder"
                )
            chain.load_state_dict(stored["state"])
            self.told = json.loads(stored["told"])
            self.predictions = [one.numpy(force=True) for one in stored["predictions"]]
        self._about = {**about, "digest": chain.spec.digest, "spec": chain.spec.to_json(), "test_images": test_images}
        self._about["environment"] = chain.environment().to_json()

    def run(self, stop: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Sample until the chain is done or `stop` holds; `tell` prints the progress."""
        while not self.chain.done:
            began = time.monotonic()
            events = self.chain.advance(stop)
            took = time.monotonic() - began
            self.told["seconds"] += took
            self.told["epoch_seconds"] += took
            for event in events:
                if isinstance(event, Progress):
                    self._epoch(event, tell)
                else:
                    self._sample(event, tell)
            if any(isinstance(event, Sample) for event in events):
                self.write()
            if not events or self.chain.done or time.monotonic() - self._saved > CHECKPOINT_SECONDS:
                self.save()
            if not events:
                return

    def _epoch(self, event: Progress, tell: Callable[[str], None]) -> None:
        epochs = self.told["epochs"]
        epochs.append({"epoch": event.epoch + 1, "loss": event.loss, "seconds": self.told["epoch_seconds"]})
        self.told["epoch_seconds"] = 0.0
        if len(epochs) <= 3 or len(epochs) % EPOCHS_A_LINE == 0:
            left = (self.chain.spec.steps - self.chain.step) / self.chain.spec.steps_per_epoch * self.seconds_per_epoch
            rate = f"{self.images_per_second:,.0f} images/s"
            tell(f"epoch {event.epoch + 1}  loss {event.loss:.4f}  lr {event.lr:.4g}  {rate}, {left:.0f} s left")

    def _sample(self, sample: Sample, tell: Callable[[str], None]) -> None:
        blocks = [self._test.predict(sample.tensors, shard) for shard in range(self._test.shards)]
        self.predictions.append(np.concatenate(blocks))
        self.told["samples"].append(sample.meta.to_json())
        now = measured(np.stack(self.predictions))[-1]
        tell(
            f"sample {now['samples']}  cycle {sample.meta.cycle + 1}  epoch {sample.meta.epoch + 1}  "
            f"error {100 * now['error']:.2f} %  NLL {now['nll']:.4f}, of all samples so far"
        )

    @property
    def seconds_per_epoch(self) -> float:
        """The median, without the first epochs, in which gradients are recorded, where there are others."""
        times = [epoch["seconds"] for epoch in self.told["epochs"]]
        return statistics.median(times[3:] or times or [self.told["seconds"]])

    @property
    def images_per_second(self) -> float:
        """Training images a second of the median epoch."""
        return self.chain.num_data / self.seconds_per_epoch

    def write(self) -> None:
        """Write what is known so far: METHOD-REPEAT.json and METHOD-REPEAT.npy."""
        if not self.predictions:
            return
        stacked = np.stack(self.predictions)
        about = {**self._about, "done": self.chain.done, **self.told, "measured": measured(stacked)}
        about |= {"seconds_per_epoch": self.seconds_per_epoch, "images_per_second": self.images_per_second}
        with replacing(self.out.with_suffix(".npy")) as file:
            np.save(file, stacked)
        with replacing(self.out.with_suffix(".json")) as file:
            file.write((json.dumps(about, indent=1) + "\n").encode())

    def save(self) -> None:
        """Write the checkpoint."""
        predictions = [torch.from_numpy(one) for one in self.predictions]
        stored = {"state": self.chain.state_dict(), "told": json.dumps(self.told), "predictions": predictions}
        with replacing(self.checkpoint) as file:
            torch.save(stored, file)
        self._saved = time.monotonic()


def main(argv: Sequence[str] | None = None) -> int:
    began = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", choices=METHODS, default="csghmc", help="default: csghmc")
    parser.add_argument("--repeat", type=int, choices=range(REPEATS), default=0, help="which of the table's chains")
    parser.add_argument("--device", default="cuda", help="any torch device; default: cuda")
    parser.add_argument("--data-root", help="where cifar-10-batches-py lies; default: RAYCHAINS_DATA")
    parser.add_argument("--out", type=Path, default=Path("gpu-paper"), help="folder of the results; default: gpu-paper")
    parser.add_argument("--checkpoints", type=Path, help="folder of the checkpoint; default: that of the results")
    parser.add_argument("--minutes", type=float, default=9.0, help="stop after so many, with exit status 3; default: 9")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="fewer only show that everything runs")
    parser.add_argument("--subset", type=int, help="training images and test images, in place of all")
    args = parser.parse_args(argv)
    name = f"{args.method}-{args.repeat}"
    try:
        require(args.minutes > 0, "minutes", args.minutes, "be above 0")
        until = began + 60 * args.minutes
        with rooted(args.data_root):
            precision = "fp32" if args.device == "cpu" else "bf16"
            asked = spec(args.method, args.repeat, precision=precision, epochs=args.epochs, subset=args.subset)
            chain = Chain(asked, device=args.device)
            images = min(len(sets.load(DATA, "test")), args.subset or sys.maxsize)
            about = {"method": args.method, "repeat": args.repeat, "train_images": chain.num_data}
            checkpoint = (args.checkpoints or args.out) / f"{name}.pt"
            one = PaperChain(chain, images, checkpoint, args.out / name, about)
            one.write()  # results may lie elsewhere than the last call's
            epochs = f"{chain.step / chain.spec.steps_per_epoch:.0f} of {args.epochs} epochs"
            print(
                f"{name} on {chain.environment().device}: {epochs} after {time.monotonic() - began:.1f} s", flush=True
            )
            one.run(lambda: time.monotonic() > until, lambda line: print(line, flush=True))
    except (RaychainsError, OSError) as error:  # of files: a folder that cannot be written
        print(f"gpu-paper: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError | OSError) else 1
    if not chain.done:
        print(f"{args.minutes:g} minutes are over: the same command continues", flush=True)
        return UNFINISHED
    print(f"done: {args.out / name}.json, {args.out / name}.npy; {one.told['seconds']:.0f} s of sampling", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
