"""The step of `benchmarks/packs.py` in JAX: ``packs_jax.py CASE CHAINS STEPS`` prints CPU seconds per step and chain by
round.

mixture25-LANES and banana-LANES are blackjax's SGHMC step, vmapped over the lanes of all chains and scanned inside jit.

It runs in an environment of its own, in which raychains is not installed.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.sgmcmc.diffusions import sghmc

CASES: dict[str, tuple[list[int], int, int, float]] = {
    "digits": ([64, 100, 100, 10], 500, 50, 0.06),
    "regression": ([5, 16, 16, 16, 16, 1], 1202, 1202, 0.001),
}
"""Widths, number of data, batch size, step size."""
MOMENTUM, DECAY, ROUNDS = 0.9, 1e-3, 5


def density(name: str, lanes: int, steps: int) -> list[float]:
    """Return the CPU seconds per step and lane of each round; every 10th position is kept."""
    axis, variance = jnp.asarray([-4.0, -2.0, 0.0, 2.0, 4.0]), 0.03

    def mixture25(theta: Any) -> Any:
        away = theta[:, None] - axis
        return -(jax.nn.softmax(away**2 * (-0.5 / variance), axis=-1) * away).sum(-1) / variance

    banana = jax.grad(lambda x: -(x[0] ** 2) / 2 - (x[1] - x[0] ** 2) ** 2 / 0.5)
    gradient = {"mixture25": mixture25, "banana": banana}[name]

    length = 0.03  # of a step, lr ** .5: its explicit Euler scheme is unstable at ours
    move = sghmc(alpha=(1 - MOMENTUM) / length)

    def step(state: Any, key: Any) -> tuple[Any, None]:
        keys = jax.random.split(key, lanes)
        return jax.vmap(lambda p, v, k: move(k, p, v, gradient(p), length))(*state, keys), None

    def ten(carried: Any, _: Any) -> tuple[Any, Any]:
        state, key = carried
        key, mine = jax.random.split(key)
        state, _ = jax.lax.scan(step, state, jax.random.split(mine, 10))
        return (state, key), state[0]

    many = jax.jit(lambda carried: jax.lax.scan(ten, carried, length=-(-steps // 10)))
    first, second, key = jax.random.split(jax.random.PRNGKey(0), 3)
    wide = 10.0 if name == "mixture25" else 1.0
    begin = jax.random.uniform(first, (lanes, 2), minval=-wide, maxval=wide)
    carried, times = ((begin, 0.1 * jax.random.normal(second, (lanes, 2))), key), []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        carried, kept = many(carried)
        jax.block_until_ready(kept)
        times.append((time.process_time() - began) / (-(-steps // 10) * 10) / lanes)
    assert bool(jnp.isfinite(kept).all())
    return times[1:]


def main() -> None:
    case, chains, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    name, dash, lanes = case.partition("-")
    if dash:
        print(json.dumps(density(name, int(lanes) * chains, steps)))
        return
    widths, n, batch, lr = CASES[case]
    drawn = np.random.default_rng(0)
    x = jnp.asarray(drawn.normal(size=(n, widths[0])), jnp.float32)
    y = jnp.asarray(drawn.integers(0, 10, n) if case == "digits" else drawn.normal(size=(n, 1)))
    y = y if case == "digits" else y.astype(jnp.float32)

    def network(parameters: Any, inputs: Any) -> Any:
        for number, (w, b) in enumerate(parameters["layers"]):
            inputs = (jax.nn.relu(inputs) if number else inputs) @ w + b
        return inputs

    def loss(parameters: Any, inputs: Any, targets: Any) -> Any:
        out = network(parameters, inputs)
        if case == "digits":
            return -jnp.take_along_axis(jax.nn.log_softmax(out), targets[:, None], axis=1).mean()
        log_noise = parameters["log_noise"]
        return (0.5 * jnp.square(targets - out).sum(1).mean() * jnp.exp(-2 * log_noise) + log_noise)[0]

    def step(state: Any, number: Any) -> tuple[Any, Any]:
        parameters, velocity, order, key = state
        key, mine = jax.random.split(key)
        rows = jax.lax.dynamic_slice(order, ((number * batch) % (n // batch * batch),), (batch,))
        value, gradients = jax.value_and_grad(loss)(parameters, x[rows], y[rows])
        leaves, tree = jax.tree.flatten(parameters)
        keys = jax.tree.unflatten(tree, list(jax.random.split(mine, len(leaves))))
        std = (2 * (1 - MOMENTUM) * lr / n) ** 0.5
        velocity = jax.tree.map(
            lambda v, g, p, k: MOMENTUM * v - lr * (g + DECAY * p) + std * jax.random.normal(k, p.shape),
            velocity,
            gradients,
            parameters,
            keys,
        )
        return (jax.tree.map(jnp.add, parameters, velocity), velocity, order, key), value

    @partial(jax.jit, donate_argnums=0)
    def many(state: Any) -> Any:
        return jax.lax.scan(lambda s, i: jax.vmap(step, in_axes=(0, None))(s, i), state, jnp.arange(steps))

    shapes = list(itertools.pairwise(widths))
    layers = [
        (
            jnp.asarray(drawn.uniform(-1, 1, (chains, a, b)) / a**0.5, jnp.float32),
            jnp.asarray(drawn.uniform(-1, 1, (chains, b)) / a**0.5, jnp.float32),
        )
        for a, b in shapes
    ]
    parameters: Any = {"layers": layers, "log_noise": jnp.zeros((chains, 1))}
    orders = jnp.asarray(np.stack([drawn.permutation(n) for _ in range(chains)]))
    keys = jax.random.split(jax.random.PRNGKey(0), chains)
    state = (parameters, jax.tree.map(jnp.zeros_like, parameters), orders, keys)
    times = []
    for _ in range(ROUNDS + 1):
        began = time.process_time()
        state, losses = many(state)
        jax.block_until_ready(losses)
        times.append((time.process_time() - began) / steps / chains)
    assert bool(jnp.isfinite(losses).all())
    print(json.dumps(times[1:]))


if __name__ == "__main__":
    main()
