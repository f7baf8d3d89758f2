"""The methods that both tables compare, all at as many gradient evaluations: chains, their lengths and draws, settings,
claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from raychains import papers as rp
from raychains.tasks.defaults import Defaults
from raychains.tasks.uci import UciRegression

ENSEMBLE = "deep-ensemble"
SEED = 7
MORE = "deep-ensemble-more"
LABELS = {ENSEMBLE: "Deep ensemble, at which MILE starts", MORE: "Deep ensemble, more members"}
LABELS |= rp.labels("mile csghmc sghmc csgld sgld emcmc")
"""Rows of both tables, and their names in claims."""
EQUAL_COST = tuple(name for name in LABELS if name != ENSEMBLE)
CYCLICAL = ("csghmc", "csgld", "emcmc")
CYCLES, EXPLORATION = 4, 0.8
ON_GPUS = ("gpu", "paper")
"""Scales whose chains are not packed: a pack steps on a CPU."""
MOST_MEMBERS = 200
"""Most members of the larger deep ensemble."""
NAMES = {"airfoil": "Airfoil", "bikesharing": "Bike sharing", "concrete": "Concrete", "energy": "Energy"}
NAMES |= {"yacht": "Yacht", "protein": "Protein"}
"""Labels of the data sets."""
_TASKS = {kind.dataset: kind for kind in UciRegression.__subclasses__()}
EXAMPLES = {"airfoil": 1503, "bikesharing": 17_379, "concrete": 1030, "energy": 768, "yacht": 308, "protein": 45_730}
SMOKE_EXAMPLES = 200
"""Examples of each stand-in."""


def size_of(
    *,
    tune: int,
    draws: int,
    apart: int = 10,
    start: int = 1200,
    members: int = 10,
    repeats: int = 5,
    batch_size: int | None = None,
) -> rp.Size:
    """Return the size of one data set's chains.

    Its epochs are gradient evaluations per training example of every method's member, at most: of a start and a chain
    together. MILE takes two gradients of all examples a step.

    Args:
        tune: MILE's warm-up steps.
        draws: kept of every chain but those of deep ensembles, which have one.
        apart: MILE's steps between draws.
        start: the most epochs of a member of the deep ensemble.
        members: chains of every method.
        repeats: seeds, or random splits.
        batch_size: of the methods on minibatches; None is the task's.
    """
    chain = 2 * (tune + draws * apart)
    own = {"mile": {"epochs": chain, "sampler_settings": (f"tune={tune}",), "thinning": apart}}
    return rp.Size(
        epochs=start + chain, chains=members, repeats=repeats, draws=draws, start=start, batch_size=batch_size, own=own
    )


def preset(
    name: str, dataset: str, size: rp.Size, scale: str, about: str, *, repeats: int = 1, **task_settings: Any
) -> rp.Preset:
    """Return every method on one division of a data set."""
    batches = _batches(dataset, size, scale, task_settings.get("protocol", "bde") == "bde")
    own: dict[str, Any] = {} if size.batch_size is None else {"batch_size": size.batch_size}
    steps = size.epochs * batches
    cyclical = {"epochs": size.epochs, **rp.thinning.cyclical(steps, size.draws, CYCLES, EXPLORATION)}
    falling = {"epochs": size.epochs, **rp.thinning.decreasing(steps, size.draws, 0.75)}
    options: dict[str, dict[str, Any]] = {
        ENSEMBLE: {"epochs": size.start, "chains": size.chains},
        MORE: {"epochs": size.start, "chains": min(MOST_MEMBERS, size.chains * (size.epochs // size.start))},
        "mile": {"init_from": f"{ENSEMBLE}:{size.start},20", **size.own["mile"]},
        **{method: cyclical if method in CYCLICAL else falling for method in LABELS if method not in STARTED},
    }
    variants = []
    for method in LABELS:
        minibatch = {} if method == "mile" else own
        sampler = ENSEMBLE if method == MORE else method
        schedule = "constant" if method in STARTED else "cyclical" if method in CYCLICAL else "decreasing"
        packed = {} if scale in ON_GPUS else {"pack": str(size.chains)}
        given = {"chains": size.chains, **packed, **minibatch, **options[method]}
        variants.append(rp.Variant(method, "", sampler, given, schedule=schedule))
    settings = tuple(f"{key}={value}" for key, value in task_settings.items())
    common = {"seed": SEED, "repeats": repeats, **({"task_settings": settings} if settings else {})}
    return rp.Preset(name=f"{name}-{dataset}", about=about, task=f"uci-{dataset}", options=common, variants=variants)


STARTED = (ENSEMBLE, MORE, "mile")


def _batches(dataset: str, size: rp.Size, scale: str, fixed_split: bool) -> int:
    """Return the steps of an epoch on minibatches."""
    examples = SMOKE_EXAMPLES if scale == "smoke" else EXAMPLES[dataset]
    defaults = _TASKS[dataset].defaults
    assert isinstance(defaults, Defaults)
    batch = size.batch_size if size.batch_size is not None else defaults.batch_size
    return math.ceil((examples - math.ceil(0.2 * examples) if fixed_split else round(0.9 * examples)) / batch)


def settings(sizes: Mapping[str, rp.Size]) -> list[rp.Setting]:
    """Return what the methods have in common, with the sizes by data set."""

    def each(number: Callable[[rp.Size], int]) -> str:
        found = {name: number(size) for name, size in sizes.items()}
        values = dict.fromkeys(found.values())
        if len(values) == 1:
            return f"{next(iter(values)):,}"
        return ", ".join(f"{value:,} ({NAMES[name]})" for name, value in found.items())

    def tuned(size: rp.Size) -> int:
        return (size.epochs - size.start) // 2 - size.draws * apart(size)

    def apart(size: rp.Size) -> int:
        return int(size.own["mile"]["thinning"])

    full = all((tuned(s), s.chains) == (50_000, 10) for s in sizes.values())
    return [
        rp.Setting("prior, temperature", "N(0, I), 1", rp.PUBLISHED),
        rp.Setting("members (chains of each method)", each(lambda s: s.chains), rp.PUBLISHED if full else rp.OURS),
        rp.Setting("MILE's warm-up steps", each(tuned), rp.PUBLISHED if full else rp.OURS),
        rp.Setting("draws of a chain", each(lambda s: s.draws), rp.PUBLISHED if full else rp.OURS),
        rp.Setting("steps between MILE's draws", each(apart), rp.PUBLISHED if full else rp.OURS),
        rp.Setting("most epochs of a deep ensemble's member", each(lambda s: s.start), rp.CODE if full else rp.OURS),
        rp.Setting("epochs of every method's chain, its start's counted", each(lambda s: s.epochs), rp.OURS),
        rp.Setting("cycles, β", f"{CYCLES}, {EXPLORATION}", rp.OURS),
        rp.Setting("step sizes", "the tasks', chosen on validation examples", rp.OURS),
    ]


def claims(part: str, label: str, column: str, better: str, what: str) -> tuple[rp.Claim, ...]:
    """Return what is claimed on a data set, of a column of which the lower or higher value is better."""
    # (left, right, why)
    pairs = [
        ("mile", ENSEMBLE, "improves on the deep ensemble that it starts from"),
        *[("mile", right, "is better, at as many gradients, than") for right in EQUAL_COST if right != "mile"],
        ("csghmc", "sghmc", "is better, at as many gradients, than"),
        ("csgld", "sgld", "is better, at as many gradients, than"),
        ("emcmc", "csgld", "is better, at as many gradients, than"),
    ]
    sign = "<" if better == "lower" else ">"
    table = (
        f"{left}-against-{right}-{column.replace('_', '-')}-{part} | {part} {column} | {left} {sign} {right} paired | "
        f"{label}, {what}: {LABELS[left]} {words}{'' if right == ENSEMBLE else f' {_sentence(right)}'}."
        for left, right, words in pairs
    )
    return rp.stated(table, scales=rp.NOT_SMOKE)


def _sentence(method: str) -> str:
    return "the deep ensemble with more members" if method == MORE else LABELS[method]


DIFFERENCES = """
smoke: A few steps on 200 made-up examples: this only shows that everything runs.
smoke cpu gpu paper: All methods but the first row have the same number of gradient evaluations, counted per training
    example: a step of MILE takes two of every example, any other step one of a minibatch. The members of the deep
    ensemble at which MILE starts count with their most epochs, although they stop early; the deep ensemble with more
    members has as many as fit by that count, 200 at most, and so takes less than it may.
smoke cpu gpu paper: Step sizes are the tasks' defaults. They were chosen on examples held out of the training data, at
    temperature 1 and the prior N(0, I), by benchmarks/uci_settings.py; its table is docs/results/uci-settings.csv.
    Longer chains diverged with some of them, which are smaller: energy (cSGHMC 3e-4, cSGLD 1e-3, Entropy-MCMC 3e-3),
    yacht (cSGHMC 1e-4, SGHMC, cSGLD and Entropy-MCMC 1e-3), concrete and airfoil (cSGLD .01), protein (cSGHMC .001).
    Nothing else was tuned, and MILE finds its own.
smoke cpu gpu paper: Entropy-MCMC predicts with draws of θ and of θₐ, as its paper does: twice as many as the other
    samplers.
smoke cpu gpu paper: Our deep ensemble is AdamW on minibatches with the prior's weight decay, its members stop after 20
    epochs without a lower loss on 15 % of the training data. bde's takes plain Adam steps on all examples.
smoke cpu: Chains are packed, which changes their rounding alone.
cpu: pSMILE was a row of this table, too, until it was removed from raychains; the hours of chains count its own.
smoke cpu gpu: MILE warms up for fewer steps than bde's 50,000, and all other methods run as much shorter.
"""
