"""The local learning coefficient of the checkpoints that chains are localised around, and examples' loss traces there.

λ̂ = nβ·(E[L(w)] − L(w*)), L the mean loss over the run's split, of each chain by itself (Lau et al. 2023,
https://arxiv.org/abs/2308.12108). E[L] and L(w*) are over the same examples: a minibatch for L(w*) that chains share
would correlate them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from raychains import priors, schedules
from raychains.core.sample import THETA
from raychains.core.spec import ChainSpec
from raychains.evaluation import mcmc_diagnostics
from raychains.evaluation.evaluation import Array, Evaluation, joined
from raychains.inference.run_data import RunData
from raychains.measures import panels
from raychains.measures.draws import evenly
from raychains.measures.measure import Context, Measure, Row, Tables, class_weights, networks_only
from raychains.measures.network_samples import Drawn, drawn
from raychains.planning import Arm
from raychains.plotting.arm_styles import in_one_panel
from raychains.plotting.charts import DOT, Axis, Chart, Line, Mark, Panel, Rule, dots, in_lines
from raychains.plotting.style import INK, Drawing
from raychains.store import Storage, initial_states

EXAMPLES = 64
"""Examples whose loss traces and covariances are kept, evenly spread over the split."""
BELOW = 0.1
"""Share of a chain's draws with a loss below L(w*) from which a warning says so."""
APART = 1.1
"""R-hat of an arm's losses from which its chains disagree, and of one chain's halves from which it drifts."""


def why_not(context: Context) -> str | None:
    """Return the reason where no chain starts at a checkpoint, or the split is another than the chains learn from."""
    if reason := networks_only(context) or class_weights(context):
        return reason
    if not any(_is_local(context.comparison.arms[arm].chains[group][0]) for arm, group in context.groups):
        return "no chain with noise starts at a checkpoint: raychains local makes such runs"
    return (
        None if context.split == "train" else f"chains sample the loss on train, not on {context.split}: --split train"
    )


def tables(context: Context) -> Tables:
    """``llc``, ``llc_chains``, ``llc_trace``, ``llc_examples``, ``llc_example_losses`` and ``llc_covariance``."""
    found: dict[str, list[Row]] = {}
    for arm, group in context.groups:
        if _is_local(context.comparison.arms[arm].chains[group][0]):
            for name, rows in _Losses(context, arm, group).tables().items():
                found.setdefault(name, []).extend(rows)
    return found


@dataclass(frozen=True)
class Temper:
    """The strengths of a local chain's target."""

    nbeta: float
    gamma: float


def temper(spec: ChainSpec) -> Temper:
    """Return nβ = N/T and γ = 1/(T·std²) of a chain at the temperature T with a prior of this std around its start."""
    temperature = float(schedules.build(spec.schedule).temperature)
    nbeta = int(spec.sampler.settings["num_data"]) / temperature
    own = None if spec.prior is None else priors.build(spec.prior)
    return Temper(nbeta, 1 / (temperature * own.std**2) if isinstance(own, priors.Centred) else 0.0)


def _is_local(spec: ChainSpec) -> bool:
    """Return whether a chain starts at a file and has noise."""
    return spec.start is not None and spec.early_stop is None and schedules.build(spec.schedule).temperature > 0


def losses(evaluation: Evaluation, block: Array) -> Array:
    """Return −log p(y | x, w) of each example, [examples], of one sample's predictions on the whole split."""
    shards = range(evaluation.shards)
    return -np.concatenate([evaluation.log_likelihoods(block[evaluation.range_of(s)], s) for s in shards])


def start_losses(root: Storage, evaluation: Evaluation, spec: ChainSpec) -> Array:
    """Return −log p(y | x, w*) of each example at a chain's start, [examples]."""
    tensors = initial_states.read(root, str(spec.start))
    blocks = [evaluation.predict(tensors, shard) for shard in range(evaluation.shards)]
    return losses(evaluation, joined(blocks))


def _r_hat(series: Array) -> float:
    """Return the R-hat of series [chains, draws]; nan where there are too few draws."""
    return float(mcmc_diagnostics.r_hat(series[..., None])[0]) if series.shape[1] >= 8 else float("nan")


class _Losses:
    """The losses of one arm's draws, and of its start."""

    def __init__(self, context: Context, arm: int, group: int) -> None:
        self._about = {"arm": context.arm_name(arm), "group": group}
        specs = context.comparison.arms[arm].chains[group]
        evaluation = context.task.splits()[context.split]
        self.start = start_losses(context.store.root, evaluation, specs[0])
        self.temper = temper(specs[0])
        samples = [one for one in drawn(context, arm, group) if one.meta.variable == THETA]
        by_place = sorted(samples, key=lambda one: one.at)
        self.kept = np.array(evenly(len(self.start), EXAMPLES))
        total, square = np.zeros_like(self.start), np.zeros_like(self.start)
        mean: dict[int, float] = {}
        traced: dict[int, Array] = {}
        sums: dict[int, Array] = {}
        places = {one.at for one in samples}
        predicted = (block for at, block in enumerate(context.predictions(arm, group)) if at in places)
        for one, block in zip(context.counted("losses", by_place), predicted, strict=True):
            each = losses(evaluation, block)
            mean[one.at], traced[one.at] = float(each.mean()), each[self.kept]
            total += each
            square += (each - self.start) ** 2
            sums[one.chain] = sums.get(one.chain, 0.0) + (each - self.start)
        counts = {chain: sum(one.chain == chain for one in samples) for chain in sums}
        # Variances are within chains, about each chain's own mean; of differences from w*, which lose no digits.
        within = square - sum(sums[chain] ** 2 / counts[chain] for chain in sums)
        self.example_mean = total / len(samples)
        self.example_variance = np.maximum(within, 0.0) / max(1, len(samples) - len(sums))
        self.chains = [[one for one in samples if one.chain == chain] for chain in sorted(sums)]
        fewest = min(map(len, self.chains))
        self.loss = np.array([[mean[one.at] for one in chain[:fewest]] for chain in self.chains])
        """[chains, draws]"""
        self.traces = np.array([[traced[one.at] for one in chain[:fewest]] for chain in self.chains])
        """[chains, draws, kept examples]"""

    def tables(self) -> dict[str, list[Row]]:
        return {
            "llc": [self._arm()],
            "llc_chains": [self._chain(c) for c in range(len(self.chains))],
            "llc_trace": self._trace(),
            "llc_examples": self._examples(),
            "llc_example_losses": self._example_losses(),
            "llc_covariance": self._covariance(),
        }

    @property
    def excess(self) -> Array:
        """nβ·(L(w) − L(w*)) of each draw, [chains, draws]."""
        return self.temper.nbeta * (self.loss - self.start.mean())

    def _arm(self) -> Row:
        each = self.excess.mean(1)
        estimate = mcmc_diagnostics.mean(self.excess)
        spread = float(each.std(ddof=1)) if len(each) > 1 else float("nan")
        r_hat = _r_hat(self.excess)
        warnings = [w for c in range(len(each)) if (w := self._warning(c))]
        if len(each) > 1 and r_hat > APART:
            warnings.append(f"the chains disagree (R-hat {r_hat:.2f}): more burn-in, or more draws")
        return {
            **self._about,
            "llc": float(each.mean()),
            "sd": spread,
            "error": estimate.error,
            "chains": len(each),
            "draws": self.excess.shape[1],
            "nbeta": self.temper.nbeta,
            "gamma": self.temper.gamma,
            "start_loss": float(self.start.mean()),
            "mean_loss": float(self.loss.mean()),
            "r_hat": r_hat,
            "warning": "; ".join(dict.fromkeys(warnings)),
        }

    def _chain(self, c: int) -> Row:
        mine = self.excess[c]
        return {
            **self._about,
            "chain": self.chains[c][0].chain,
            "llc": float(mine.mean()),
            "error": mcmc_diagnostics.mean(mine[None]).error,
            "mean_loss": float(self.loss[c].mean()),
            "below": float((mine < 0).mean()),
            "r_hat": _r_hat(mine[None]),
            "warning": self._warning(c),
        }

    def _warning(self, c: int) -> str:
        """Return one line on a chain whose estimate is not to be trusted; nothing for others."""
        mine, chain = self.excess[c], self.chains[c][0].chain
        found = []
        if mine.mean() < 0:
            found.append(
                f"chain {chain}: E[L] is below L(w*): w* is no minimum of this loss, train longer or raise `gamma`"
            )
        elif (share := float((mine < 0).mean())) > BELOW:
            found.append(f"chain {chain}: {share:.0%} of its draws have a loss below L(w*): w* may be no minimum")
        if (r_hat := _r_hat(mine[None])) > APART:
            half = len(mine) // 2
            way = "rises" if mine[-half:].mean() > mine[:half].mean() else "falls"
            found.append(f"chain {chain}: its loss {way} (R-hat of its halves {r_hat:.2f}): more burn-in or draws")
        return "; ".join(found)

    def _trace(self) -> list[Row]:
        running = np.cumsum(self.excess, axis=1) / np.arange(1, self.excess.shape[1] + 1)
        return [
            {**self._about, **self._draw(c, d), "loss": float(self.loss[c, d]), "llc": float(running[c, d])}
            for c, d in np.ndindex(*self.loss.shape)
        ]

    def _draw(self, c: int, d: int) -> Row:
        one: Drawn = self.chains[c][d]
        return {"chain": one.chain, "index": one.meta.index, "step": one.meta.step}

    def _examples(self) -> list[Row]:
        columns = zip(self.start.tolist(), self.example_mean.tolist(), self.example_variance.tolist(), strict=True)
        return [
            {**self._about, "example": i, "start_loss": start, "mean_loss": mean, "variance": variance}
            for i, (start, mean, variance) in enumerate(columns)
        ]

    def _example_losses(self) -> list[Row]:
        return [
            {**self._about, **self._draw(c, d), "example": int(example), "loss": float(loss)}
            for c, d in np.ndindex(*self.loss.shape)
            for example, loss in zip(self.kept, self.traces[c, d], strict=True)
        ]

    def _covariance(self) -> list[Row]:
        """Rows of the examples' covariance over draws, within chains."""
        away = self.traces - self.traces.mean(1, keepdims=True)
        flat = away.reshape(-1, away.shape[2])
        covariance = flat.T @ flat / max(1, len(flat) - len(away))
        sd = np.sqrt(np.diagonal(covariance))
        with np.errstate(divide="ignore", invalid="ignore"):
            correlation = covariance / np.outer(sd, sd)
        return [
            {
                **self._about,
                "first": int(self.kept[i]),
                "second": int(self.kept[j]),
                "covariance": float(covariance[i, j]),
                "correlation": float(correlation[i, j]),
            }
            for i in range(len(sd))
            for j in range(i, len(sd))
        ]


def in_words(run: RunData) -> list[str]:
    """Return each arm's estimate in a line, followed by one with its warning, if any."""
    found = panels.table(run, "llc", "arm warning", "group llc error")
    lines: list[str] = []
    for row in [] if found is None else found.to_dict("records"):
        lines.append(f"local learning coefficient of {row['arm']}: {row['llc']:.4g} ± {row['error']:.2g}")
        lines += [f"  {row['warning']}"] if row["warning"] else []
    return lines


# Figures


@panels.drawn_from("llc_chains", "arm", "group chain llc error")
def estimates(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw each arm's estimates; None unless chains were localised."""
    arms = panels.present(run, table)
    if not arms:
        return None
    return Drawing(
        name="llc",
        title="Local learning coefficient",
        caption="λ̂ = nβ·(E[L(w)] − L(w*)) of each chain (dots), and the mean over chains (line).",
        alt="Estimates of the local learning coefficient of each arm",
        draw=_estimates(table, arms),
        data=table.to_dict("records"),
    )


def _estimates(table: pd.DataFrame, arms: list[Arm]) -> Chart:
    marks: list[Mark] = []
    for line, arm in enumerate(arms):
        mine = table[table["arm"] == arm.name]["llc"].to_numpy()
        mean = Rule(at=mine.mean(), upright=True, ends=(line - 0.3, line + 0.3), style={"color": INK, "linewidth": 1.5})
        marks += [dots(line, mine, DOT), mean]
    return in_lines([arm.label for arm in arms], [(Axis(label="λ̂"), marks)])


@panels.drawn_from("llc_trace", "arm", "group chain index step llc")
def trace(run: RunData, table: pd.DataFrame) -> Drawing | None:
    """Draw the estimates against the step; None unless chains were localised."""
    arms = panels.present(run, table)
    if not arms:
        return None
    return Drawing(
        name="llc_trace",
        title="Local learning coefficient over the steps",
        caption="λ̂ of the draws so far, a line for each chain: it should settle, at the same height in all chains of "
        "an arm.",
        alt="Estimates of the local learning coefficient against the step",
        draw=_trace(panels.first_groups(table), arms),
        data=table.to_dict("records"),
    )


def _trace(table: pd.DataFrame, arms: list[Arm]) -> Chart:
    styles = in_one_panel(arms)
    lines = [
        Line(x=chain["step"], y=chain["llc"], style=styles[arm.name].style(linewidth=1), label=arm.label)
        for arm in arms
        for _, chain in table[table["arm"] == arm.name].groupby("chain")
    ]
    x, y = Axis(label="Step", text="{:,.0f}".format), Axis(label="λ̂ of the draws so far")
    return Chart(panels=[Panel(marks=lines, x=x, y=y)], legend_columns=2)


MEASURE = Measure(
    name="llc",
    section="Flatness",
    about="local learning coefficient of the checkpoints that chains start at, examples' loss traces and their "
    "covariance",
    tables=tables,
    why_not=why_not,
    figures={"llc": estimates, "llc_trace": trace},
    in_words=in_words,
)
