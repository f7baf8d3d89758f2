"""The posterior of your own network on your own data: a small transformer on a table, from data to calibrated
prediction.

    python examples/own_model.py

The data are the Wisconsin breast-cancer table (569 cells, 30 measurements) that scikit-learn brings along. Nothing here
needs a task of raychains': a function that builds the network and two pairs of arrays make one. About 20 seconds on two
cores, most of them Ray's start.
"""

import sys

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import raychains as rc

TRAIN = 300


class TableTransformer(nn.Module):
    """Each measurement is one token, scaled along a direction of its own; attention mixes them; the first one
    answers."""

    def __init__(self, features: int, classes: int, width: int = 16, heads: int = 2, layers: int = 1) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.randn(features, width) / width**0.5)
        self.place = nn.Parameter(torch.randn(features + 1, width) / width**0.5)
        block = nn.TransformerEncoderLayer(
            width, heads, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.mix = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.answer = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x[..., None] * self.direction
        asked = torch.zeros_like(tokens[:, :1])
        return self.answer(self.mix(torch.cat([asked, tokens], dim=1) + self.place)[:, 0])


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(inputs, labels) to learn from and to test on; inputs are standardised by the former."""
    table = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(table.data))
    x, y = table.data[order], table.target[order]
    x = (x - x[:TRAIN].mean(0)) / x[:TRAIN].std(0)
    x = x.astype(np.float32)
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])


def main(store: str = "runs") -> None:
    train, test = load()
    # A lambda will do: it travels to the workers as it is. Raise `version` when TableTransformer computes something
    # else.
    task = rc.Task.from_module(
        lambda: TableTransformer(features=30, classes=2), train, test, loss="cross_entropy", name="cells", version="1"
    )
    result = rc.run(
        task=task, sampler="csghmc", chains=2, epochs=32, cycles=4, batch_size=50, lr=0.03, weight_decay=1e-3,
        store=store, resume=True,
    )  # fmt: skip
    print(result.table(full=True).iloc[0].to_string())

    posterior = result.predictive()
    p = posterior(test[0])  # [n, 2], the average over all samples
    one = np.exp(log_softmax(posterior.outputs(test[0])[0]))
    print(
        f"\n{len(posterior)} samples; mean confidence and share that is right, by the averaged prediction's confidence:"
    )
    for low, high in ((0.5, 0.8), (0.8, 0.95), (0.95, 1.01)):
        at = (p.max(1) >= low) & (p.max(1) < high)
        if at.any():
            right = (p.argmax(1) == test[1])[at].mean()
            print(f"  {low:4.2f} to {min(high, 1):4.2f}: {at.sum():3d} cells, {p.max(1)[at].mean():.3f}, {right:.3f}")
    nlls = [-np.log(q[np.arange(len(q)), test[1]]).mean() for q in (p, one)]
    print(f"NLL of the average {nlls[0]:.4f}, of its first sample alone {nlls[1]:.4f}")


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).log_softmax(-1).numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])
