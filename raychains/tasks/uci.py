"""Regression on six UCI tables under an MLP, divided as bde's benchmark or as the classic 20 random splits divide
them."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from raychains.core.errors import require
from raychains.core.validation import integer, one_of
from raychains.data import standin_manifest, tabular
from raychains.data.source import Resident
from raychains.evaluation.evaluation import Array, Evaluation
from raychains.evaluation.regression import Regression
from raychains.tasks.base import PredictiveTask, seeded
from raychains.tasks.defaults import SMALL, Defaults, network_rates
from raychains.tasks.likelihoods import LEARNED, GaussianNoise, Heteroscedastic, Likelihood
from raychains.tasks.splits import check_hidden, divide, sizes

NOISES = ("heteroscedastic", LEARNED)
CLASSIC_SPLITS = 20
"""Random splits of the classic protocol; the papers use the first 5 of protein."""
STOPPING = "stopping"
"""The split of training examples on which a start's training may be stopped; chains sample with them too."""
STOPPING_SHARE = 0.15


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A way to divide a table, and the network and likelihood that go with it."""

    hidden: tuple[int, ...]
    noise: str
    """One of `NOISES`."""
    splits: int
    """The number of its splits."""
    normal: bool
    """True if weights begin at N(0, 1/inputs) and biases at 0, instead of as torch's default has them."""


PROTOCOLS: Mapping[str, Protocol] = {
    "bde": Protocol(hidden=(16, 16, 16, 16), noise="heteroscedastic", splits=1, normal=True),
    "splits": Protocol(hidden=(50,), noise=LEARNED, splits=CLASSIC_SPLITS, normal=False),
}


def bde_split(examples: int) -> tuple[Array, Array]:
    """Return the positions of training and test examples as scikit-learn's ``train_test_split(test_size=.2,
    random_state=0)``.

    Importing scikit-learn costs a chain worker seconds, and its splits have been this permutation since version 0.18.
    """
    order = np.random.RandomState(0).permutation(examples)
    tests = math.ceil(0.2 * examples)
    return order[tests:], order[:tests]


def classic_split(examples: int, split: int) -> tuple[Array, Array]:
    """Return the positions of training and test examples, 90 % and 10 %, of one of the classic random splits.

    They are those of the script beside the published tables of Hernández-Lobato & Adams 2015 and Gal & Ghahramani 2016:
    after ``numpy.random.seed(1)`` one permutation for each split in turn, of which the first round(.9·n) are for
    training.
    """
    stream = np.random.RandomState(1)
    for _ in range(split + 1):
        order = stream.permutation(examples)
    train = round(examples * 9 / 10)
    return order[:train], order[train:]


def _defaults(
    epochs: int,
    batch_size: int,
    *,
    sghmc: tuple[float, float],
    sgld: tuple[float, float],
    emcmc: float,
    psgld: float,
    ensemble: float,
    eta: float = 1e-3,
) -> Defaults:
    """Four cycles of pSGLD with T = 1, about 22,000 steps: 25 s for two chains on two cores. Everything is ours.

    Where σ(x) may be small, curvatures of 1/σ² are larger than a long step of a sampler without a preconditioner
    allows. The preconditioner's ε keeps units that no example activates from being thrown far away.

    Args:
        sghmc, sgld: step sizes under the cyclical and under the decreasing schedule, chosen with those of Entropy-MCMC
            (and its η), cyclical pSGLD and the deep ensemble on validation examples that are held out of the training
            data (benchmarks/uci_settings.py, docs/results/uci-settings.csv). Those of other samplers follow from
            SGHMC's cyclical one.
    """
    rates = {**network_rates(sghmc[0]), ("decreasing", "sghmc"): sghmc[1], ("decreasing", "sgdm"): sghmc[1]}
    for kind in ("sgld", "sgd"):
        rates |= {("cyclical", kind): sgld[0], ("decreasing", kind): sgld[1]}
    rates |= {("cyclical", "emcmc"): emcmc, ("cyclical", "psgld"): psgld, ("cyclical", "adamw"): ensemble}
    return Defaults(
        samplers=("psgld",),
        run="cpsgld",
        lr=rates,
        sampler_settings={"psgld": {"eps": 1e-3}, "emcmc": {"eta": eta}},
        epochs=epochs,
        batch_size=batch_size,
        exploration=0.8,
        samples_per_cycle=5,
        repeats=1,
        non_cyclical=SMALL,
    )


class UciRegression(PredictiveTask):
    """y | x, θ ~ N(μ(x), σ²) of a table's target under a ReLU MLP, with the prior N(0, I) on all weights and biases.

    Inputs and targets have mean 0 and sd 1 over the training examples (the test examples are scaled as they are), and
    metrics are on that scale; those that end in ``_original`` are in the target's own unit. The prior is the default
    weight decay 1/N. The split ``stopping`` holds 15 % of the training examples, which chains sample with as well.

    Args:
        protocol: ``bde``: one split, 20 % for testing (scikit-learn's with random_state 0), 4 × 16 hidden units, σ(x) a
            second output: softplus + 1e-6; weights begin at N(0, 1/inputs), which in narrow layers
            leaves fewer dead units than torch's default. ``splits``: 20 random splits with 10 % for testing, one hidden
            layer of 50 units (100 for protein), one σ that is learned.
        split: its number, from 0; of ``bde`` there is 0 alone.
        hidden: widths of the hidden layers; default the protocol's.
        noise: ``heteroscedastic`` or ``learned``; default the protocol's.
        val_split: share (below 1) or number of the training examples that is held out as the split ``val``, which
            chains do not see; scales stay those of all training examples.
        split_seed: of the choice of ``val`` and of ``stopping``.

    Raises:
        UserError: a setting out of range, or a table that is not in the data root.

    Source: bde's benchmark (scikit-learn-contrib/bde, paper/scripts/benchmark.py); Hernández-Lobato & Adams 2015.
    """

    dataset: ClassVar[str]
    classic_hidden: ClassVar[tuple[int, ...]] = PROTOCOLS["splits"].hidden
    predicts = "gaussian"

    def __init__(
        self,
        protocol: str = "bde",
        split: int = 0,
        hidden: Sequence[int] | None = None,
        noise: str | None = None,
        val_split: float = 0.0,
        split_seed: int = 0,
    ) -> None:
        one_of("protocol", protocol, tuple(PROTOCOLS))
        chosen = PROTOCOLS[protocol]
        integer("split", split, 0, chosen.splits - 1, f", the splits of protocol {protocol}")
        integer("split_seed", split_seed)
        require(noise is None or noise in NOISES, "noise", noise, f"be {' or '.join(NOISES)}, or left out")
        self.protocol, self.split, self.split_seed, self.val_split = protocol, split, split_seed, val_split
        data = tabular.load(self.dataset)
        self.data_notes = (standin_manifest.NOTE.format(name=self.dataset),) if data.stand_in else ()
        noise = chosen.noise if noise is None else noise
        self.likelihood: Likelihood = Heteroscedastic() if noise == "heteroscedastic" else GaussianNoise(LEARNED)
        self.noise, self._noise, self._outputs = self.likelihood.noise, noise, 2 if noise == "heteroscedastic" else 1
        widths = self.classic_hidden if protocol == "splits" else chosen.hidden
        inputs = data.features.shape[1]
        self.hidden = check_hidden(widths if hidden is None else hidden, inputs, self._outputs)

        examples = len(data.targets)
        train, test = bde_split(examples) if protocol == "bde" else classic_split(examples, split)
        self._inputs, self._targets, self.scale = _standardised(data, train)
        held = sizes(len(train), None, val_split)
        self._parts = {"test": test, **self._training_parts(train, held.val)}
        self.num_data = held.train
        used = self._parts["train"]
        self.source = Resident(self._inputs[used], self._targets[used])
        begins = "/normal" if chosen.normal else ""
        identity = f"{data.fingerprint}/{self.likelihood.name}/{_identity(self._parts)}{begins}"
        self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()
        usual: Any = type(self).defaults
        self.defaults = dataclasses.replace(usual, weight_decay=1 / self.num_data)

    def _training_parts(self, train: Array, held: int) -> dict[str, Array]:
        """Return the positions of ``train``, of ``val`` where some are held out, and of ``stopping``, part of
        ``train``."""
        alike, rows = np.zeros(len(train), dtype=np.int64), self._inputs[train].numpy()
        out = divide(rows, alike, sizes(len(train), None, held), self.split_seed)
        used = train[out.train]
        stopping = divide(
            self._inputs[used].numpy(), alike[: len(used)], sizes(len(used), None, STOPPING_SHARE), self.split_seed
        )
        return {"train": used, STOPPING: used[stopping.val], **({"val": train[out.val]} if held else {})}

    def settings(self) -> dict[str, Any]:
        own = self._changed({"split": self.split, "val_split": self.val_split, "split_seed": self.split_seed})
        return {"protocol": self.protocol, "hidden": list(self.hidden), "noise": self._noise, **own}

    def named_network(self) -> dict[str, Any] | None:
        widths = {"inputs": self._inputs.shape[1], "hidden": list(self.hidden), "outputs": self._outputs}
        return {"name": "mlp", "settings": widths}

    def build_model(self, *, seed: int, lanes: int) -> torch.nn.Module:
        network = super().build_model(seed=seed, lanes=lanes)
        if PROTOCOLS[self.protocol].normal:
            with seeded(seed):
                for layer in network.modules():
                    if isinstance(layer, torch.nn.Linear):
                        torch.nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
                        torch.nn.init.zeros_(layer.bias)
        return self.likelihood.extend(network)

    def splits(self) -> Mapping[str, Evaluation]:
        return {name: self._split(part) for name, part in self._parts.items()}

    def _split(self, part: Array) -> Evaluation:
        return Regression(
            model=self.evaluated_model,
            inputs=self._inputs[part],
            targets=self._targets[part].double().numpy(),
            noise=self.noise,
            fingerprint=f"{self.fingerprint}/{hashlib.sha256(part.tobytes()).hexdigest()}",
            scale=self.scale,
        )


def _identity(parts: Mapping[str, Array]) -> str:
    """Return a text that identifies positions by split."""
    return "/".join(f"{name} {hashlib.sha256(np.asarray(p, '<i8').tobytes()).hexdigest()}" for name, p in parts.items())


def _standardised(data: tabular.Targeted, train: Array) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Return inputs [n, features] and targets [n] with mean 0 and sd 1 over the positions ``train``, and the targets'
    sd.

    Both float32. An input that is constant there keeps its unit, as with scikit-learn's StandardScaler.
    """
    features, targets = data.features[train], data.targets[train]
    sd = features.std(0)
    inputs = (data.features - features.mean(0)) / np.where(sd > 0, sd, 1.0)
    scale = float(targets.std())
    scaled = (data.targets - targets.mean()) / scale
    return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(scaled.astype(np.float32)), scale


class Airfoil(UciRegression):
    """Airfoil self-noise: 1,503 examples, 5 inputs, the sound pressure level in decibels."""

    name = "uci-airfoil"
    dataset = "airfoil"
    defaults = _defaults(
        600, 32, sghmc=(0.003, 0.003), sgld=(0.01, 0.03), emcmc=0.01, eta=0.0001, psgld=0.01, ensemble=0.01
    )


class BikeSharing(UciRegression):
    """Bike sharing by the hour: 17,379 examples, 12 inputs, the number of rented bicycles."""

    name = "uci-bikesharing"
    dataset = "bikesharing"
    defaults = _defaults(
        160, 100, sghmc=(0.003, 0.003), sgld=(0.03, 0.03), emcmc=0.01, eta=0.001, psgld=0.01, ensemble=0.01
    )


class Concrete(UciRegression):
    """Concrete compressive strength: 1,030 examples, 8 inputs, megapascals."""

    name = "uci-concrete"
    dataset = "concrete"
    defaults = _defaults(
        900, 32, sghmc=(0.001, 0.001), sgld=(0.01, 0.03), emcmc=0.01, eta=0.0001, psgld=0.01, ensemble=0.01
    )


class Energy(UciRegression):
    """Energy efficiency: 768 examples, 8 inputs, the heating load in kWh/m² (the table's first target)."""

    name = "uci-energy"
    dataset = "energy"
    defaults = _defaults(
        1100, 32, sghmc=(0.0003, 0.003), sgld=(0.001, 0.03), emcmc=0.003, eta=0.0001, psgld=0.01, ensemble=0.01
    )


class Yacht(UciRegression):
    """Yacht hydrodynamics: 308 examples, 6 inputs, the residuary resistance per unit weight of displacement."""

    name = "uci-yacht"
    dataset = "yacht"
    defaults = _defaults(
        2800, 32, sghmc=(0.0001, 0.001), sgld=(0.001, 0.01), emcmc=0.001, eta=0.001, psgld=0.01, ensemble=0.01
    )


class Protein(UciRegression):
    """Physicochemical properties of protein tertiary structure: 45,730 examples, 9 inputs, the RMSD in ångström."""

    name = "uci-protein"
    dataset = "protein"
    classic_hidden = (100,)
    defaults = _defaults(
        60, 100, sghmc=(0.001, 0.003), sgld=(0.03, 0.03), emcmc=0.01, eta=0.0001, psgld=0.01, ensemble=0.003
    )
