"""The local learning coefficient along the training of a small transformer.

    python examples/local_transformer.py

A transformer of one block learns the sum of two numbers modulo 7 with AdamW; chains around the network at several steps
of its training then estimate the local learning coefficient of each, and of the last one's attention alone. About half
a minute on two cores.
"""

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import raychains as rc

MODULUS, WIDTH, STEPS = 7, 16, (20, 80, 300)


class Transformer(nn.Module):
    """One block over the tokens a, b and =, whose last place gives the logits of (a + b) mod 7."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(MODULUS + 1, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(3, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norm = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))
        self.out = nn.Linear(WIDTH, MODULUS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place
        x = x + self.attention(x, x, x, need_weights=False)[0]
        x = x + self.mlp(self.norm(x))
        return self.out(x[:, -1])


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Return every sum three times, a third of them with a wrong result: tokens [147, 3], results [147]."""
    a, b = torch.cartesian_prod(torch.arange(MODULUS), torch.arange(MODULUS)).repeat(3, 1).T
    generator = torch.Generator().manual_seed(0)
    wrong = torch.rand(len(a), generator=generator) < 1 / 3
    result = torch.where(wrong, torch.randint(MODULUS, a.shape, generator=generator), (a + b) % MODULUS)
    return torch.stack([a, b, torch.full_like(a, MODULUS)], dim=1), result


def train(tokens: torch.Tensor, results: torch.Tensor) -> tuple[nn.Module, list[str]]:
    """Return the trained network, and the files of its weights at `STEPS`."""
    torch.manual_seed(0)
    model, files = Transformer(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(1, STEPS[-1] + 1):
        optimizer.zero_grad()
        cross_entropy(model(tokens), results).backward()
        optimizer.step()
        if step in STEPS:
            files.append(f"step-{step}.pt")
            torch.save(copy.deepcopy(model.state_dict()), files[-1])
    return model, files


if __name__ == "__main__":
    tokens, results = table()
    model, files = train(tokens, results)
    result = rc.local(
        model,
        (tokens, results),
        init_from=files,
        gamma=10.0,
        epsilon=2e-4,
        epochs=400,
        burn_in=150,
        batch_size=len(tokens),
        draws=50,
        chains=2,
        groups=("attention.*",),
        resume=True,
    )
    print(result.store.table("llc").to_pandas()[["arm", "llc", "sd", "start_loss", "mean_loss", "warning"]].to_string())
    print(f"report: {result.report}")
