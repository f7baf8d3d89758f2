"""A posterior over a language model's adapters: of a small GPT trained on prose, they are sampled on code.

    pip install peft transformers
    python examples/gpt.py

A GPT of 110,000 parameters, built from a config, is trained with AdamW to predict the next character of Python's help
pages, as a stand-in for a pretrained model. LoRA adapters of rank 4 are then sampled on the source of Python's own
modules. Perplexity is exp(NLL) per character; the average over the posterior's samples is compared with one sample
alone, and so is its calibration. The export holds the base once and all samples' adapters. About two minutes on two
cores.
"""

import inspect
import string
import sys
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

import raychains as rc

CONTEXT, STEPS, TRAIN, TEST = 32, 1_200, 5_000, 2_000
CHARACTERS = string.printable
CONFIG = GPT2Config(
    vocab_size=len(CHARACTERS), n_positions=CONTEXT, n_embd=64, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0,
    attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
LORA = LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True)
PROSE = "pydoc_data.topics"
CODE = ("argparse", "ast", "difflib", "doctest", "inspect", "pickle", "tarfile", "typing", "unittest.mock", "zipfile")


class NextCharacter(nn.Module):
    """A GPT with adapters that gives the logits of the character after its input."""

    def __init__(self) -> None:
        super().__init__()
        self.net = get_peft_model(GPT2LMHeadModel(CONFIG), LORA)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.net(input_ids=tokens, logits_to_keep=1).logits[:, 0]


def encoded(text: str) -> torch.Tensor:
    """Return a text as numbers of its characters, int64."""
    number = {c: i for i, c in enumerate(CHARACTERS)}
    return torch.tensor([number[c] for c in text if c in number])


def load() -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return prose, and windows of code with the character after each: to learn from, and of other files to test on."""
    topics = __import__(PROSE, fromlist=["topics"]).topics
    files = [encoded(inspect.getsource(__import__(name, fromlist=["*"]))) for name in CODE]
    drawn = torch.Generator().manual_seed(0)
    return (
        encoded("\n".join(topics.values())),
        windows(torch.cat(files[::2]), TRAIN, drawn),
        windows(torch.cat(files[1::2]), TEST, drawn),
    )


def windows(text: torch.Tensor, n: int, drawn: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return n windows at random places [n, CONTEXT] and what follows each [n]."""
    places = torch.randint(len(text) - CONTEXT, (n,), generator=drawn)
    found = text[places[:, None] + torch.arange(CONTEXT + 1)]
    return found[:, :-1].contiguous(), found[:, -1].contiguous()


def pretrained(prose: torch.Tensor) -> nn.Module:
    """Return a model whose base was trained; its adapters have no effect yet, because LoRA begins at B = 0."""
    torch.manual_seed(0)
    model, drawn = NextCharacter(), torch.Generator().manual_seed(1)
    base = [p for name, p in model.named_parameters() if "lora_" not in name]
    for p in base:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(base, lr=3e-3)
    for _ in range(STEPS):
        x, last = windows(prose, 64, drawn)
        optimizer.zero_grad()
        logits = model.net(input_ids=x).logits  # every position learns
        cross_entropy(logits.flatten(0, 1), torch.cat([x[:, 1:], last[:, None]], dim=1).flatten()).backward()
        optimizer.step()
    return model


def main(store: str = "runs") -> None:
    prose, train, test = load()
    model = pretrained(prose)
    with torch.no_grad():
        before = cross_entropy(model(test[0]), test[1])
    task = rc.Task.from_module(NextCharacter, train, test, loss="cross_entropy", name="code")
    result = rc.run(
        task=task, init_from=model, sample_only="*lora_*", sampler="csghmc", chains=2, epochs=16, cycles=4,
        batch_size=50, lr=0.02, weight_decay=1e-3, store=store, resume=True,
    )  # fmt: skip
    found = result.table(full=True).iloc[0]
    logits = torch.from_numpy(result.predictive().outputs(test[0]))  # [samples, windows, characters]
    alone = torch.stack([cross_entropy(each, test[1]) for each in logits])
    print(result.table())
    print(f"perplexity of the base {before.exp():.2f}, of one sample {alone.mean().exp():.2f}", end=", ")
    print(f"of the posterior {torch.tensor(found['nll']).exp():.2f}; its calibration error {100 * found['ece']:.1f} %")
    file = Path(store) / "code.safetensors"
    file.unlink(missing_ok=True)  # of an earlier call
    exported = result.export(file)
    adapters = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    whole = sum(p.numel() for p in model.parameters())
    print(f"{adapters:,} of {whole:,} parameters are sampled; {len(logits)} samples are exported", end=" ")
    print(
        f"as {exported.bytes / 1e6:.2f} MB, which without a common base would be {len(logits) * 4 * whole / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
