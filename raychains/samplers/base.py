"""What every sampler shares: a `torch.optim.Optimizer` with its own generators, N and a temperature."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from raychains.errors import UserError, require
from raychains.schedules.base import is_number


class Sampler(torch.optim.Optimizer):
    """Base of all samplers; usable in any training loop and with any ``torch.optim.lr_scheduler``.

    The loss that is differentiated is the *mean* minibatch negative log-likelihood. ``num_data`` (N) and
    ``temperature`` (T) make an optimiser of ``lr`` and ``weight_decay`` a sampler of exp(−U/T) with
    U(θ) = N·(loss + ½·weight_decay·‖θ‖²).

    Generators and counters live in an own ``"sampler"`` entry of `state_dict`, because torch casts everything in
    ``state[p]`` to the parameter's dtype on load.
    """

    kind: ClassVar[str]
    revision: ClassVar[int] = 1
    """Raised by a change that alters samples."""
    gradients_per_step: ClassVar[int] = 1
    """Gradient evaluations that one step spends."""

    def __init__(
        self, params: Any, defaults: dict[str, Any], *, num_data: int, temperature: float, seed: int | None
    ) -> None:
        ok = isinstance(num_data, int) and not isinstance(num_data, bool) and num_data >= 1
        require(ok, "num_data", num_data, "be an integer of at least 1: the number of training data, N")
        self.num_data = num_data
        # Drawn from torch's global generator, so that torch.manual_seed governs a loop that gives no seed.
        self._seed = int(torch.randint(2**62, ())) if seed is None else seed
        self._generators: dict[torch.device, torch.Generator] = {}
        super().__init__(params, {**defaults, "temperature": temperature})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            self._check_group(self.param_groups[-1])
        except UserError:
            self.param_groups.pop()
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        """Refuse a parameter group with settings out of range or parameters that cannot be sampled."""
        check_group(group)
        for p in group["params"]:
            if p.is_complex():
                raise UserError(
                    f"{type(self).__name__} samples real parameters only, got one of dtype {p.dtype}: store its real and imaginary parts"
                )

    def generator(self, device: torch.device) -> torch.Generator:
        """The noise generator of one device, seeded on first use."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient.

        ``closure`` re-evaluates the loss, as in `torch.optim.SGD`; its value is returned.

        Raises:
            UserError: a sparse gradient.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(group, params, [self._dense(p) for p in params])
        return loss

    @abstractmethod
    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        """The update rule for one parameter group, under ``no_grad``."""

    def _dense(self, p: Tensor) -> Tensor:
        assert p.grad is not None
        if p.grad.layout is not torch.strided:
            raise UserError(
                f"{type(self).__name__} needs dense gradients, got a {p.grad.layout} one for a parameter of shape "
                f"{tuple(p.shape)}: build the layer without sparse=True"
            )
        return p.grad

    def draws(self) -> Iterator[tuple[str, list[Tensor]]]:
        """The variables that this sampler draws: ``("theta", parameters in the order of the groups)``."""
        yield "theta", [p for group in self.param_groups for p in group["params"]]

    def effective_noise_std(self) -> float:
        """Standard deviation of the noise that the next step injects into the first group's parameters."""
        return 0.0

    def state_dict(self) -> dict[str, Any]:
        generators = {str(device): g.get_state() for device, g in self._generators.items()}
        own = {"seed": self._seed, "num_data": self.num_data, "generators": generators}
        return {**super().state_dict(), "sampler": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave: parameters' states, groups and every generator, bit for bit."""
        rest = dict(state_dict)
        own = rest.pop("sampler", None)
        if own is None:
            raise UserError(
                f"{type(self).__name__}: the state has no 'sampler' entry: it was saved by another optimizer"
            )
        super().load_state_dict(rest)
        for state in self.state.values():  # torch keeps the given tensors, which two samplers would then share
            state.update({name: value.clone() for name, value in state.items() if isinstance(value, Tensor)})
        self._seed, self.num_data = own["seed"], own["num_data"]
        self._generators = {}
        for name, state in own["generators"].items():
            device = torch.device(name)
            self._generators[device] = torch.Generator(device)
            self._generators[device].set_state(state.to("cpu", torch.uint8))


def check_group(group: dict[str, Any]) -> None:
    """Refuse settings out of range, in the house's one-line form."""
    at_least_0 = "be a finite number of at least 0"
    for name in ("lr", "temperature", "weight_decay"):
        require(is_number(group[name]) and group[name] >= 0, name, group[name], at_least_0)
    momentum = group.get("momentum", 0.0)
    require(is_number(momentum) and 0 <= momentum < 1, "momentum", momentum, "lie in [0, 1)")


Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
