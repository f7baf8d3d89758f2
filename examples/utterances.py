"""Utterances of unequal length: `rc.fit` with a collate_fn, by an LSTM or by attention, and a speaker that it has not
heard.

    python examples/utterances.py lstm|attention TRAIN TEST [BUDGET]

TRAIN and TEST are files in the format .ts (also .gz) of JapaneseVowels, from the UCI and UEA archives: the vowels /ae/
of nine men, 12 coefficients at 7 to 29 times. The last speaker is left out of what is learned: of his utterances the
predictive should be unsure. BUDGET is the epochs of everything (500): about a minute on one core.
"""

import gzip
import sys

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import raychains as rc

COEFFICIENTS, SPEAKERS, HIDDEN = 12, 9, 24
Example = tuple[Tensor, int]


def load(file: str) -> list[Example]:
    """(utterance [times, coefficients], speaker from 0 on) of each line."""
    with (gzip.open if file.endswith(".gz") else open)(file, "rt") as lines:
        rows = [line.strip().split(":") for line in lines if line[:1] not in "#@\n"]
    return [
        (torch.tensor([[float(x) for x in part.split(",")] for part in parts]).T.contiguous(), int(label) - 1)
        for *parts, label in rows
    ]


def collate(examples: list[Example]) -> dict[str, Tensor]:
    """A batch: zeros behind the shorter utterances, and where there is something."""
    x = nn.utils.rnn.pad_sequence([x for x, _ in examples], batch_first=True)
    lengths = torch.tensor([len(x) for x, _ in examples])
    there = torch.arange(x.shape[1]) < lengths[:, None]
    return {"x": x, "there": there, "labels": torch.tensor([y for _, y in examples])}


class Recurrent(nn.Module):
    """An LSTM, and a linear layer of its mean over the utterance."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(COEFFICIENTS, HIDDEN, batch_first=True)
        self.out = nn.Linear(HIDDEN, SPEAKERS - 1)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        return self.out(mean(self.lstm(x)[0], there))


class Attention(nn.Module):
    """A layer of self-attention, and a linear layer of its mean over the utterance."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(COEFFICIENTS, HIDDEN)
        self.attention = nn.MultiheadAttention(HIDDEN, 4, batch_first=True)
        self.out = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, SPEAKERS - 1))

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        h = self.first(x)
        h = h + self.attention(h, h, h, key_padding_mask=~there, need_weights=False)[0]
        return self.out(mean(h, there))


def mean(h: Tensor, there: Tensor) -> Tensor:
    """Mean over the times that are there, [n, features]."""
    weights = there[..., None].to(h.dtype)
    return (h * weights).sum(1) / weights.sum(1)


def main(
    kind: str, train_file: str, test_file: str, budget: str = "500", store: str = "runs"
) -> tuple[rc.Result, float]:
    train, test = ([e for e in load(file) if e[1] < SPEAKERS - 1] for file in (train_file, test_file))
    unheard = [e for e in load(test_file) if e[1] == SPEAKERS - 1]
    task = rc.Task.from_module(
        {"lstm": Recurrent, "attention": Attention}[kind], train, test, collate_fn=collate, name=kind
    )
    result = rc.fit(
        task=task, budget=int(budget), reference=True, backend="process", store=store, name=kind, resume=True
    )
    print(result)
    predict = result.posterior()
    entropies = []
    for examples in (test, unheard):
        inputs = collate(examples)
        del inputs["labels"]
        with torch.inference_mode():
            entropies.append(predict(inputs).entropy.numpy())
    area = float(roc_auc_score([0] * len(test) + [1] * len(unheard), np.concatenate(entropies)))
    known, other = (e.mean() for e in entropies)
    print(f"entropy of the predictive: {known:.2f} nats, of a speaker that was not heard {other:.2f}: AUROC {area:.2f}")
    return result, area


if __name__ == "__main__":
    main(*sys.argv[1:])
