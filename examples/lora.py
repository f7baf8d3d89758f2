"""The posterior of LoRA adapters: a small transformer, fine-tuned by sampling on a shifted task.

    pip install peft transformers
    python examples/lora.py

A vision transformer of 22,000 parameters is trained on scikit-learn's digits with AdamW, as a stand-in for a pretrained
model; adapters of rank 4 are then sampled on 300 digits that lie on their side. The base stays as
it is, and samples hold the adapters alone. About half a minute on two cores.
"""

import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification

import raychains as rc

UPRIGHT, TRAIN = 900, 300
CONFIG = ViTConfig(
    image_size=8, patch_size=2, num_channels=1, num_labels=10, hidden_size=32, num_hidden_layers=2,
    num_attention_heads=2, intermediate_size=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", lora_dropout=0.0)


def adapted() -> nn.Module:
    """A Hugging Face classifier with adapters; the likelihood takes the `logits` of what it returns."""
    return get_peft_model(ViTForImageClassification(CONFIG), LORA)


def load() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Return upright digits, and digits on their side to learn from and to test on: images [n, 1, 8, 8], labels [n]."""
    table = load_digits()
    order = np.random.default_rng(0).permutation(len(table.images))
    x = torch.from_numpy(table.images[order]).float()[:, None] / 16
    y, side, end = torch.from_numpy(table.target[order]), x.transpose(2, 3), UPRIGHT + TRAIN
    return (x[:UPRIGHT], y[:UPRIGHT]), (side[UPRIGHT:end], y[UPRIGHT:end]), (side[end:], y[end:])


def pretrained(x: torch.Tensor, y: torch.Tensor, epochs: int = 20) -> nn.Module:
    """Return a model whose base was trained; its adapters have no effect yet, because LoRA begins at B = 0."""
    torch.manual_seed(0)
    model = adapted()
    base = [p for name, p in model.named_parameters() if "lora_" not in name]
    for p in base:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(base, lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            cross_entropy(model(pixel_values=x[rows]).logits, y[rows]).backward()
            optimizer.step()
    return model


def main(store: str = "runs") -> None:
    upright, train, test = load()
    model = pretrained(*upright)
    with torch.no_grad():
        error = (model(pixel_values=test[0]).logits.argmax(1) != test[1]).float().mean()
    sets = ({"pixel_values": x, "labels": y} for x, y in (train, test))
    task = rc.Task.from_module(adapted, *sets, name="digits-on-their-side")
    result = rc.run(
        task=task, init_from=model, sample_only="*lora_*", sampler="csghmc", chains=2, epochs=40, cycles=4,
        batch_size=50, lr=0.05, weight_decay=1e-3, store=store, resume=True,
    )  # fmt: skip
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    print(result.table())
    print(f"error without adapters {error:.3f}, of the posterior {result.table(full=True)['error'].iloc[0]:.3f}")
    print(f"{adapters:,} of {sum(p.numel() for p in model.parameters()):,} parameters are sampled")


if __name__ == "__main__":
    main(*sys.argv[1:])
