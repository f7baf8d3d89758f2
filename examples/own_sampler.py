"""A sampler of your own in a comparison, beside a built-in one: SGLD with Adam's step sizes.

    python examples/own_sampler.py

The class is passed as it is, from this very script; in a module of yours it works by its name as well, as in
``raychains compare --sampler sgld mymodule:AdamSGLD --lr sgld=.1,mymodule:AdamSGLD=.003``. About 40 seconds on two
cores.
"""

import math
import sys

import raychains as rc
from raychains.samplers import setting


class AdamSGLD(rc.Sampler):
    """θ ← θ − lr·(m̂ + λθ)/(√v̂ + ε) + √(2·lr·T/(N(√v̂ + ε)))·ξ: m̂ and v̂ are Adam's averages of the gradient and its
    square.

    Like pSGLD without its correction term: exp(−U/T) is its target as far as v̂ stands still.
    """

    beta1: float = setting("β₁, how slowly m̂ forgets.", default=0.9)
    beta2: float = setting("β₂, how slowly v̂ forgets.", default=0.999)
    eps: float = setting("ε, added to √v̂.", default=1e-3)

    def _update(self, group, params, grads):
        """Make one step of a parameter group."""
        lr, beta1, beta2 = group["lr"], group["beta1"], group["beta2"]
        for p, grad in zip(params, grads, strict=True):
            count = self.state_of(p, "count").add_(1).flatten()[0]
            mean = self.state_of(p, "mean").lerp_(grad, 1 - beta1)
            square = self.state_of(p, "square").lerp_(grad.square(), 1 - beta2)
            scale = (square / (1 - beta2**count)).sqrt().add_(group["eps"])
            p.sub_(lr * (mean / (1 - beta1**count) + group["weight_decay"] * p) / scale)
            if group["temperature"] > 0:
                p.add_(self.noise_like(p) * (2 * lr * group["temperature"] / (self.num_data * scale)).sqrt())

    def effective_noise_std(self):
        """Return the noise's standard deviation where the gradient's size is 1."""
        group = self.param_groups[0]
        return math.sqrt(2 * group["lr"] * group["temperature"] / self.num_data)


def main(store: str = "runs") -> None:
    result = rc.compare(
        task="digits", sampler=("sgld", AdamSGLD), schedule=("cyclical",), lr={"sgld": 0.5, AdamSGLD: 0.003},
        epochs=40, cycles=4, chains=2, repeats=2, store=store, resume=True,
    )  # fmt: skip
    print(result.table(full=True)[["label", "error", "nll", "ece"]].to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
