"""Estimators of scikit-learn whose fit samples the posterior of a small network, as `rc.run` samples it."""

from __future__ import annotations

import contextlib
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from raychains import samplers
from raychains.api import fit, sampling
from raychains.api.keywords import ALONE
from raychains.core.errors import ChainsFailed, UserError, renamed, require, shown
from raychains.core.validation import as_number, integer, is_int, is_number
from raychains.inference.intervals import mixture_quantiles
from raychains.models import MLP
from raychains.tasks import Task

if TYPE_CHECKING:
    from raychains.api.result import Result
    from raychains.inference import PosteriorPredictive

__all__ = ["PosteriorClassifier", "PosteriorRegressor"]

Array = np.ndarray[Any, Any]
AUTO = "auto"
"""The method that is chosen by held-out data, as `raychains.fit` does."""
FEW = 30
"""Examples below which nothing is held out, and ``auto`` is ``cpsgld``."""
AUTO_EPOCHS, EPOCHS, LR, EPS = 250, 100, 0.003, 1e-3
"""Defaults of ``epochs``, of a fit and of a method, ``lr`` and pSGLD's ε, which keeps units that no example activates
in place; ours."""
BATCH = 32
MEMBERS = "deep-ensemble:300,20"
"""The deep ensemble at which chains of some methods start: at most 300 epochs, stopped after 20 without a lower loss;
ours."""
OF_METHOD = {"psgld": {"eps": EPS}, "cpsgld": {"eps": EPS}, "mile": {"energy_error": 0.01}}
"""Samplers' settings by method. MILE's own energy error of .1 biases longer chains of these networks too much."""
SEEDS = 2**31 - 1
NAMED = {"sampler": "method", "seed": "random_state", "budget": "epochs*chains"}
"""Arguments of the estimators by the options of `run` that they are."""
OWN = {"task", "workers", "store", "resume", "repeats", "backend"}
"""Arguments of a run that ``options`` cannot have."""


class _PosteriorEstimator(BaseEstimator):
    """Base of the estimators: constructor, scaling of inputs, and the run.

    Fitted: ``posterior_``, the samples as a `raychains.PosteriorPredictive` of standardised inputs in double precision;
    ``n_features_in_``; with ``store`` also ``run_``, the run's folder.
    """

    _loss: str

    def __init__(
        self,
        *,
        method: str = AUTO,
        chains: int = 4,
        epochs: int | None = None,
        lr: float | None = None,
        hidden: Sequence[int] | int = (50, 50),
        random_state: Any = 0,
        backend: str = "ray",
        store: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.chains = chains
        self.epochs = epochs
        self.lr = lr
        self.hidden = hidden
        self.random_state = random_state
        self.backend = backend
        self.store = store
        self.options = options

    def _scaled(self, X: Array) -> torch.Tensor:
        return torch.from_numpy((X - self._mean) / self._sd)

    def _fit(self, X: Array, targets: torch.Tensor, outputs: int) -> None:
        """Sample the posterior given standardised inputs and targets [n]."""
        require(self.options is None or isinstance(self.options, Mapping), "options", self.options, "be a dict")
        given = self.options or {}
        for name in sorted(OWN & given.keys()):
            raise UserError(f"options must not name {name}, got {shown(self.options)}: the estimator sets it")
        self._mean, sd = X.mean(0), X.std(0)
        self._sd = np.where(sd > 0, sd, 1.0)
        inputs = self._scaled(X).float()
        hidden: Any = as_number(self.hidden)
        hidden = (hidden,) if is_int(hidden) else hidden
        n, features = inputs.shape
        train = (inputs, targets)
        task = Task.from_module(lambda: MLP(features, hidden, outputs), train, train, self._loss, name="sklearn")
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(SEEDS)
        common = {"chains": self.chains, "seed": int(seed), "backend": self.backend, "pack": "auto"}
        chosen = self.method == AUTO and n >= FEW
        settings = common | (self._of_fit() if chosen else self._of_run(n))
        sampled: Callable[..., Result] = fit.sample if chosen else sampling.sample
        own = {option: name for option, name in NAMED.items() if option not in given}
        with self._stored() as store, ALONE:  # a fit's task replaces that of the fit before
            try:
                with renamed(own):
                    result = sampled(task, store=store, resume=True, **settings)
            except ChainsFailed as error:
                if self.store is not None:
                    raise
                failed, _, rest = str(error).partition("; what was computed is in ")
                raise ChainsFailed(f"{failed}; {rest.partition('; ')[2]}") from None  # the temporary store goes
            for line in result.suspicions():
                warnings.warn(line, ConvergenceWarning, stacklevel=3)
            self.posterior_: PosteriorPredictive = result.posterior().double()
            if self.store is not None:
                self.run_ = str(result.path)

    def _of_fit(self) -> dict[str, Any]:
        """Return the options of a fit that chooses the method."""
        require(self.lr is None, "lr", self.lr, "be left out with method 'auto', which chooses it")
        epochs, chains = as_number(AUTO_EPOCHS if self.epochs is None else self.epochs), as_number(self.chains)
        for name, value in (("epochs", epochs), ("chains", chains)):
            integer(name, value, 1)
        return {"budget": epochs * chains, **(self.options or {})}

    def _of_run(self, n: int) -> dict[str, Any]:
        """Return the options of a run of the method on n examples."""
        given = self.options or {}
        method = "cpsgld" if self.method == AUTO else self.method
        preset = samplers.METHODS.get(method) if isinstance(method, str) else None
        whole = preset is not None and preset.full_batch
        epochs = EPOCHS * math.ceil(n / BATCH) if whole else EPOCHS  # as many gradients with either batch
        settings = {
            "sampler": method,
            "epochs": epochs if self.epochs is None else self.epochs,
            "lr": LR if self.lr is None else self.lr,
            **({} if whole else {"batch_size": min(BATCH, n)}),
            **({} if "prior" in given else {"weight_decay": 1 / n}),
            **({"sampler_settings": OF_METHOD[method]} if method in OF_METHOD else {}),
            **given,
        }
        if preset is not None and "init_from" in preset.settings and settings.get("init_from") is None:
            settings["init_from"] = MEMBERS
            if is_number(settings["lr"]):
                settings["lr"] = {method: settings["lr"], "deep-ensemble": LR}
        return settings

    @contextlib.contextmanager
    def _stored(self) -> Iterator[str]:
        """Yield the run store: the user's, or a temporary one."""
        if self.store is not None:
            yield str(self.store)
            return
        with tempfile.TemporaryDirectory(prefix="raychains-fit-") as folder:
            yield folder

    def _inputs(self, X: Any) -> torch.Tensor:
        """Return a user's inputs, checked and scaled, double [n, features]."""
        check_is_fitted(self)
        return self._scaled(validate_data(self, X, reset=False, dtype=np.float64))


class PosteriorRegressor(RegressorMixin, _PosteriorEstimator):
    """Regression by posterior samples of a ReLU MLP with two outputs: y | x, θ ~ N(μ(x), σ(x)²), σ = softplus + 1e-6.

    Inputs and targets are standardised inside; the prior is N(0, 1) on every weight and bias (weight decay 1/n, T = 1).
    Predictions are those of the mixture of all samples.

    Args:
        method: ``auto`` chooses by held-out data and mixes a deep ensemble with what predicts best beside it, as
            `raychains.fit` does; of fewer than 30 examples it is ``cpsgld``. Or a sampling method of `raychains.run`:
            ``cpsgld`` divides steps by the gradients' size; others need an ``lr`` of their own. Chains of ``mile``
            start at members of a deep ensemble, of at most 300 epochs with a step size of .003.
        chains: number of chains; of ``auto`` the least.
        epochs: of each chain; default 100, of methods that read all examples in every step as many as make as many
            steps. Of ``auto``, times ``chains``, the epochs of all that it tries and samples; default 250.
        lr: initial step size; default .003. ``auto`` takes none.
        hidden: widths of the hidden layers, or one number.
        random_state: an integer, a `numpy.random.RandomState`, or None.
        backend: ``ray``: chains run in processes of a Ray that is started for the fit or named by ``options={"address":
            …}``;
            ``process``: in this process, without importing Ray.
        store: the run store to keep; default a temporary one. A fit that the store holds already is not repeated.
        options: further options of `raychains.run`, of ``auto`` those of `raychains.fit`; they replace those above, as
            ``{"batch_size": 100}`` does.

    Raises:
        UserError: on fitting, a setting out of range.
    """

    _loss = "heteroscedastic"

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the posterior given inputs X [n, features] and targets y [n].

        Raises:
            UserError: a setting out of range.
            ChainsFailed: some chains were given up.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        self._y_mean, sd = float(y.mean()), float(y.std())
        self._y_sd = sd if sd > 0 else 1.0
        self._fit(X, torch.from_numpy((y - self._y_mean) / self._y_sd).float(), 2)
        return self

    def predict(self, X: Any, return_std: bool = False, quantiles: Sequence[float] | None = None) -> Any:
        """Return the mean of the predictive distribution, [n].

        Args:
            X: [n, features].
            return_std: whether to return its standard deviation, noise included, [n], after it.
            quantiles: probabilities in (0, 1), whose quantiles [n, quantiles] are returned last.

        Returns:
            The mean, or a tuple of all that was asked for.

        Raises:
            UserError: a probability out of range.
        """
        inputs = self._inputs(X)
        if quantiles is not None:
            several = isinstance(quantiles, Sequence | np.ndarray) and len(quantiles) > 0
            ok = several and all(is_number(as_number(q)) and 0 < q < 1 for q in quantiles)
            require(ok, "quantiles", quantiles, "be probabilities between 0 and 1, as in [0.05, 0.95]")
        with torch.inference_mode():
            weights, means, sigmas = (t.numpy() for t in self.posterior_.gaussians(inputs))
        means, sigmas = means * self._y_sd + self._y_mean, sigmas * self._y_sd
        mean = np.einsum("s,sn->n", weights, means[..., 0])
        found = [mean]
        if return_std:
            spread = sigmas[..., 0] ** 2 + (means[..., 0] - mean) ** 2
            found.append(np.sqrt(np.einsum("s,sn->n", weights, spread)))
        if quantiles is not None:
            found.append(mixture_quantiles(means, sigmas, weights, list(quantiles))[:, 0])
        return found[0] if len(found) == 1 else tuple(found)


class PosteriorClassifier(ClassifierMixin, _PosteriorEstimator):
    """Classification by posterior samples of a ReLU MLP with a softmax: probabilities are averaged over all samples.

    Inputs are standardised inside; the prior is N(0, 1) on every weight and bias (weight decay 1/n, T = 1). Fitted, it
    has ``classes_``. Arguments are those of `PosteriorRegressor`.

    Raises:
        UserError: on fitting, a setting out of range.
    """

    _loss = "cross_entropy"

    def fit(self, X: Any, y: Any) -> Self:
        """Sample the posterior given inputs X [n, features] and labels y [n], numbers or texts.

        Raises:
            UserError: a setting out of range, or labels of a single class.
            ChainsFailed: some chains were given up.
        """
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        several = "have labels of two classes or more: there is nothing to tell from one class"
        require(len(self.classes_) > 1, "y", self.classes_.tolist(), several)
        self._fit(X, torch.from_numpy(labels.astype(np.int64)), len(self.classes_))
        return self

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of ``classes_``, [n, classes]."""
        inputs = self._inputs(X)
        with torch.inference_mode():
            found: Array = self.posterior_(inputs).probabilities.numpy()
        return found

    def predict(self, X: Any) -> Array:
        """Return the most probable label, [n]."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])
