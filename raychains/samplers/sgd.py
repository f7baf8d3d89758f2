"""SGD and SGDM, the optimisation baselines: the zero-temperature limits of SGLD and SGHMC."""

from __future__ import annotations

from typing import ClassVar

from raychains.samplers.sampler import MethodPreset, Presets
from raychains.samplers.settings import setting
from raychains.samplers.sghmc import VelocitySampler


class SGD(VelocitySampler):
    """θ ← θ − lr·g.

    Equals `torch.optim.SGD` (dampening 0, no Nesterov) to rounding. Under a cyclical step size, one sample at each
    cycle's end, it is Snapshot-SGD.

    Target: none; an optimiser.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: the baseline of cSG-MCMC (ICLR 2020); Snapshot ensembles: Huang et al. 2017,
    https://arxiv.org/abs/1704.00109.
    """

    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting("0, the only value allowed.", default=0.0)
    seed: int | None = setting("not used.", default=None)
    momentum: float = setting(default=0.0, init=False)

    kind = "sgd"
    presets: ClassVar[Presets] = {
        "sgd": MethodPreset(schedule="decreasing", label="SGD", cyclical_label="cSGD"),
        # Snapshot ensembles (Huang et al. 2017): one sample at the end of each cycle, no noise.
        "snapshot-sgd": MethodPreset(
            schedule="cyclical", label="Snapshot-SGD", settings={"samples_per_cycle": 1}, fixed=True
        ),
    }
    revision = 2
    missing_grad = "skip"
    noisy_counterpart = "sgld"


class SGDM(VelocitySampler):
    """v ← m·v − lr·g;  θ ← θ + v: SGD with momentum in velocity form.

    Equals `torch.optim.SGD(momentum=m)` to rounding while lr is constant; when lr varies torch rescales the whole
    accumulated velocity and this form, the papers', does not. Under a cyclical step size it is Snapshot-SGDM.

    Target: none; an optimiser.

    Raises:
        UserError: a setting out of range, a complex parameter or a sparse gradient.

    Source: the baseline of cSG-MCMC (ICLR 2020), velocity form as in its authors' code.
    """

    num_data: int = setting("N; not used by the update.", default=1)
    temperature: float = setting("0, the only value allowed.", default=0.0)
    seed: int | None = setting("not used.", default=None)

    kind = "sgdm"
    presets: ClassVar[Presets] = {
        "sgdm": MethodPreset(schedule="decreasing", label="SGDM", cyclical_label="cSGDM"),
        "snapshot-sgdm": MethodPreset(
            schedule="cyclical", label="Snapshot-SGDM", settings={"samples_per_cycle": 1}, fixed=True
        ),
    }
    revision = 2
    missing_grad = "skip"
    noisy_counterpart = "sghmc"
