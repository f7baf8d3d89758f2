"""A label for every pixel: `rc.fit` with `loss="pixels"` on noisy drawings of shapes, of which some pixels are
unlabelled.

    python examples/pixels.py [BUDGET]

Draws 80 images to learn from and 100 to test on, samples a small fully convolutional network, compares with a deep
ensemble that stops early, and writes pixels.png: images, labels, p̄ and where the samples disagree. BUDGET is the
epochs of everything (4000): about a minute on one core.
"""

import sys

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import Tensor, nn

import raychains as rc

SIZE, IGNORED = 16, -100
CLASSES = ("background", "circle", "square", "triangle")


def draw(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images [n, 1, size, size] of one to three shapes in noise, and the class of each pixel [n, size, size]."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    labels = np.zeros((n, SIZE, SIZE), dtype=np.int64)
    images = np.zeros((n, SIZE, SIZE), dtype=np.float32)
    for image, label in zip(images, labels, strict=True):
        for _ in range(rng.integers(1, 4)):
            kind, r = int(rng.integers(1, 4)), rng.uniform(3, 6)
            y, x = rows - rng.uniform(r, SIZE - r), columns - rng.uniform(r, SIZE - r)
            inside = (
                x**2 + y**2 < r**2,
                np.maximum(abs(x), abs(y)) < 0.85 * r,
                (y < 0.6 * r) & (y > 1.8 * abs(x) - 0.9 * r),
            )[kind - 1]
            label[inside], image[inside] = kind, rng.uniform(0.6, 1.4)
    images += rng.normal(0, 0.35, images.shape).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = IGNORED
    return torch.from_numpy(images)[:, None], torch.from_numpy(labels)


def network() -> nn.Module:
    """Each pixel sees the 15 by 15 around it."""
    layers: list[nn.Module] = []
    for channels, dilation in ((1, 1), (8, 2), (8, 4)):
        layers += [nn.Conv2d(channels, 8, 3, padding=dilation, dilation=dilation), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(8, len(CLASSES), 1))


def figure(result: rc.Result, images: Tensor, labels: Tensor, file: str) -> None:
    """Draw images, their labels, the most probable class, its p̄ and the mutual information, a row for each image."""
    with torch.inference_mode():
        found = result.posterior()(images)
    p, information = found.probabilities, found.mutual_information
    shown = np.where(labels == IGNORED, np.nan, labels)
    columns = {
        "image": (images[:, 0], {"cmap": "gray"}),
        "labels (white: none)": (shown, {"cmap": "viridis", "vmin": 0, "vmax": len(CLASSES) - 1}),
        "most probable class": (p.argmax(-1), {"cmap": "viridis", "vmin": 0, "vmax": len(CLASSES) - 1}),
        "its probability": (p.amax(-1), {"cmap": "cividis", "vmin": 1 / len(CLASSES), "vmax": 1}),
        "mutual information (nats)": (information, {"cmap": "magma", "vmin": 0}),
    }
    picture, axes = plt.subplots(len(images), len(columns), figsize=(11, 2.1 * len(images)), layout="constrained")
    for column, (title, (values, style)) in enumerate(columns.items()):
        for row, value in enumerate(values):
            drawn = axes[row, column].imshow(np.asarray(value), **style)
            axes[row, column].set_axis_off()
            if column >= 3:
                picture.colorbar(drawn, ax=axes[row, column], shrink=0.8)
        axes[0, column].set_title(title, fontsize=9)
    picture.savefig(file, dpi=120)
    plt.close(picture)


def main(budget: str = "4000", store: str = "runs", file: str = "pixels.png") -> rc.Result:
    train, test = draw(80, seed=0), draw(100, seed=1)
    task = rc.Task.from_module(network, train, test, loss="pixels", name="shapes")
    result = rc.fit(
        task=task, budget=int(budget), reference=True, backend="process", store=store, name="shapes", resume=True
    )
    print(result)
    beside = result.store.table("reference").to_pandas().set_index(["reference", "metric"])
    for name in ("network", "ensemble"):
        row = beside.loc[(name, "nll")]
        print(
            f"NLL of an image {row['value']:.1f} nats, {row['difference']:+.1f} [{row['low']:+.1f}, "
            f"{row['high']:+.1f}] beside the {name}'s"
        )
    figure(result, test[0][:4], test[1][:4], file)
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
