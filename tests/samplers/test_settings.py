"""Settings that classes declare: the constructors, checks and docstrings that are made of them, and classes of
users."""

from __future__ import annotations

import inspect
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from raychains.core.validation import fraction
from raychains.samplers import SGD, SGHMC, SGLD, ClosureSampler, Sampler, setting
from tests.checks import refused

ROOT = Path(__file__).parents[2]


class Declared(Sampler):
    """θ ← θ − lr·β·g."""

    beta: float = setting("β in [0, 1).", default=0.5, check=fraction, column=True)
    label: str | None = setting(default=None)

    def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
        torch._foreach_add_(params, grads, alpha=-group["lr"] * group["beta"])


class Written(Sampler):
    """With a constructor of its own, as every optimizer may have."""

    def __init__(self, params: Any, *, lr: float, num_data: int, beta: float = 0.5, seed: int | None = None) -> None:
        super().__init__(params, lr=lr, weight_decay=0.0, beta=beta, num_data=num_data, temperature=0.0, seed=seed)

    _update = Declared._update


class Below(Written):
    """Inherits it."""


def parameter(value: float = 1.0) -> Tensor:
    p = torch.full((3,), value, requires_grad=True)
    p.grad = torch.ones(3)
    return p


def names(kind: Any) -> list[str]:
    return list(inspect.signature(kind).parameters)


def test_the_constructor_has_the_bases_settings_and_then_its_own() -> None:
    common = ["params", "lr", "num_data", "temperature", "weight_decay"]
    assert names(Declared) == [*common, "beta", "label", "seed", "lanes"]
    assert names(SGHMC) == [*common, "momentum", "noise_estimate", "seed", "lanes"]
    parameters = inspect.signature(Declared).parameters
    assert parameters["params"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for n, p in parameters.items() if n != "params")
    assert parameters["beta"].default == 0.5 and parameters["label"].default is None
    assert parameters["lr"].default is inspect.Parameter.empty and parameters["beta"].annotation == "float"
    assert Declared.__init__.__qualname__ == "Declared.__init__" and Declared.__init__.__module__ == __name__


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": 0.1}, "Declared.__init__() missing 1 required keyword-only argument: 'num_data'"),
        ({"lr": 0.1, "num_data": 5, "beat": 1}, "Declared.__init__() got an unexpected keyword argument 'beat'"),
    ],
)
def test_what_is_missing_or_unknown_is_named_by_python(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        Declared([parameter()], **given)
    assert str(error.value) == message


def test_values_are_in_the_groups_and_checked_there() -> None:
    p, q = parameter(), parameter()
    sampler = Declared([{"params": [p]}, {"params": [q], "beta": 0.25}], lr=0.1, num_data=5)
    sampler.step()
    assert torch.allclose(p, torch.tensor(0.95)) and torch.allclose(q, torch.tensor(0.975))
    assert not hasattr(sampler, "beta") and sampler.num_data == 5 and "num_data" not in sampler.param_groups[0]
    sampler.param_groups[1]["beta"] = 1.0
    with refused("beta must lie in [0, 1), got 1.0"):
        sampler.step()
    with refused("beta must lie in [0, 1), got -1"):
        Declared([p], lr=0.1, num_data=5, beta=-1)


def test_a_declaration_of_a_bases_setting_keeps_what_it_leaves_out() -> None:
    class Quick(Declared):
        beta: float = setting("β, as in the base.", default=0.75)

    assert Quick.elementwise == {"beta"} and names(Quick) == names(Declared)
    with refused("beta must lie in [0, 1)"):
        Quick([parameter()], lr=0.1, num_data=5, beta=2.0)
    assert Quick([parameter()], lr=0.1, num_data=5).param_groups[0]["beta"] == 0.75
    assert Declared([parameter()], lr=0.1, num_data=5).param_groups[0]["beta"] == 0.5


def test_a_fixed_setting_is_in_the_groups_and_no_argument() -> None:
    for kind in (SGLD, SGD):
        assert "momentum" not in names(kind)
        assert kind([parameter()], lr=0.1, num_data=5).param_groups[0]["momentum"] == 0
    with pytest.raises(TypeError, match="unexpected keyword argument 'momentum'"):
        SGLD([parameter()], lr=0.1, num_data=5, momentum=0.5)  # type: ignore[call-arg]


def test_a_constructor_that_somebody_wrote_stays_also_below() -> None:
    for kind in (Written, Below):
        assert names(kind) == ["params", "lr", "num_data", "beta", "seed"]
        p = parameter()
        kind([p], lr=0.1, num_data=5).step()
        assert torch.allclose(p, torch.tensor(0.95))


def test_a_class_below_a_built_in_one_may_add_a_setting() -> None:
    class Scaled(SGHMC):
        """SGHMC with gradients times c."""

        c: float = setting("c, what gradients are multiplied by.")

        def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
            super()._update(group, params, [g * group["c"] for g in grads])

    p = parameter()
    Scaled([p], lr=0.1, momentum=0.9, num_data=5, temperature=0.0, c=2.0).step()
    assert torch.allclose(p, torch.tensor(0.8))
    doc = inspect.getdoc(Scaled) or ""
    assert "\n    momentum: m in [0, 1); 0 is SGLD, bit for bit.\n" in doc
    assert "\n    c: c, what gradients are multiplied by.\n" in doc and doc.count("Args:\n") == 1


def test_a_closure_sampler_of_a_user_may_fix_its_parts() -> None:
    class Midpoint(ClosureSampler):
        m_sharpness: int = setting(default=1, init=False)

        def _second_points(self, start: list[Tensor], first: Any) -> list[Tensor]:
            return [p - 0.05 * g for p, g in zip(start, first, strict=True)]

        def _update(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]) -> None:
            torch._foreach_add_(params, grads, alpha=-group["lr"])

    p = torch.ones(3, requires_grad=True)
    sampler = Midpoint([p], lr=0.1, num_data=5)

    def closure() -> Tensor:
        loss = 0.5 * p.square().sum()
        loss.backward()
        return loss

    assert sampler.parts == 1 and math.isclose(float(sampler.step(closure)), 1.5)
    assert torch.allclose(p, torch.tensor(1 - 0.1 * 0.95))


@pytest.mark.long
def test_a_class_of_a_script_reaches_another_process_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from ray import cloudpickle\n"
        "from raychains.core.validation import fraction\n"
        "from raychains.samplers import Sampler, setting\n"
        "class Own(Sampler):\n"
        '    """Own."""\n'
        '    beta: float = setting("β.", default=0.5, check=fraction)\n'
        "    def _update(self, group, params, grads):\n"
        '        params[0].add_(group["beta"])\n'
        "open('own', 'wb').write(cloudpickle.dumps(Own))\n"
    )
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True)
    read = (
        "import torch; from ray import cloudpickle; own = cloudpickle.loads(open('own', 'rb').read())\n"
        "p = torch.ones(2, requires_grad=True); p.grad = torch.ones(2); own([p], lr=.1, num_data=5).step()\n"
        "import inspect; print(p.tolist(), own.kind, *inspect.signature(own).parameters)\n"
        "own([p], lr=.1, num_data=5, beta=2.)\n"
    )
    done = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split("] ")[0] == "[1.5, 1.5" and " beta " in done.stdout
    assert "UserError: beta must lie in [0, 1), got 2.0" in done.stderr


CALLS = """
import torch
from raychains.samplers import SGHMC, SGLD, Sampler, setting
p = [torch.zeros(3)]
SGHMC(p, lr=0.1, num_data=10, temperature=1.0, momentum=0.9, weight_decay=0.0, seed=1)
SGHMC(p, lr=0.1, num_data=10)
SGLD(p, lr=0.1, num_data=10, momentum=0.5)
class Own(Sampler):
    beta: float = setting("β.", default=0.5)
Own(p, lr=0.1, num_data=3, beta=0.2)
Own(p, lr=0.1, num_data=3, beta="a")
"""


@pytest.mark.long
def test_type_checkers_know_the_constructors(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "calls.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = [line.split(": error: ")[1] for line in done.stdout.splitlines() if ": error: " in line]
    assert found == [
        'Missing named argument "momentum" for "SGHMC"  [call-arg]',
        'Unexpected keyword argument "momentum" for "SGLD"  [call-arg]',
        'Argument "beta" to "Own" has incompatible type "str"; expected "float"  [arg-type]',
    ]
