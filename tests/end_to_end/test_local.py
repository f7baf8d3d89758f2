"""`raychains local` and `rc.local` as people call them: checkpoints of one network, and what wrong calls are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import raychains as rc
from raychains.cli import main
from tests.checks import refused
from tests.end_to_end.test_start import trained as network_trained
from tests.pool import unpaged

SHORT = ("--epochs", "20", "--chains", "2", "--draws", "10", "--batch-size", "50")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Checkpoints of digits' network after one and eight epochs of SGD."""
    folder = tmp_path_factory.mktemp("trained")
    for epoch, state in zip(range(8), network_trained(seed=0), strict=False):
        torch.save(state, folder / f"epoch{epoch}.pt")
    return [str(folder / f"epoch{epoch}.pt") for epoch in (0, 7)]


def test_every_checkpoint_has_a_coefficient_in_the_terminal_the_table_and_the_page(
    trained: list[str], runs: str, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["local", "--task", "digits", "--init-from", *trained, *SHORT, "--store", runs, "--name", "along"]
    assert main(asked) == 0
    out = capfd.readouterr().out
    folder = Path(runs) / "runs" / "along"
    rows = rc.load(folder).store.table("llc").to_pylist()
    assert [row["arm"] for row in rows] == ["epoch0", "epoch7"]
    for row in rows:
        assert f"local learning coefficient of {row['arm']}: {row['llc']:.4g} ± {row['error']:.2g}" in out
    assert rows[0]["start_loss"] > rows[1]["start_loss"]
    page = (folder / "report.html").read_text()
    assert 'id="llc"' in page and 'id="llc_trace"' in page and "could not be drawn" not in page


def test_a_module_in_python_leaves_it_as_it_was(runs: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator)
    model = nn.Linear(3, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with unpaged():
        result = rc.local(
            model, (x, x.sum(1)), groups=("weight", "bias"), loss="gaussian", noise=1.0, gamma=1.0, epochs=20, chains=2,
            draws=10, store=runs, progress=False,
        )  # fmt: skip
    rows = result.store.table("llc").to_pylist()
    assert [row["arm"].partition(" ")[2] for row in rows] == ["", "weight", "bias"]
    assert all(row["chains"] == 2 and row["draws"] == 10 and row["gamma"] == 1 for row in rows)
    rc.evaluate(str(result.path), measures=["diversity"], page=False, progress=False)
    found = result.store.table("embedding").to_pandas()
    assert found.groupby("arm")["map"].agg(["nunique", "first"])["first"].tolist() == [0, 2, 1]  # by name
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_wrong_calls_from_python_name_their_arguments() -> None:
    model = torch.nn.Linear(3, 2)
    with refused("data must be a pair of tensors (inputs, targets)"):
        rc.local(model, torch.ones(4, 3))
    with refused("model must be a torch.nn.Module", "got 'list'", "several checkpoints of it as `init_from=[…]`"):
        rc.local([model], (torch.ones(4, 3), torch.zeros(4).long()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--init-from must name a checkpoint to sample around"),
        (("--init-from", "FILE", "--gamma", "-1"), "--gamma must be a finite number of at least 0, got -1"),
        (("--init-from", "FILE", "--groups", "zz.*"), "--groups must match names of parameters, got 'zz.*'"),
        (("--init-from", "no-such-file.pt"), "--init-from must be a file, got 'no-such-file.pt'"),
    ],
)
def test_wrong_calls_are_one_line(
    words: tuple[str, ...], told: str, trained: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [trained[0] if word == "FILE" else word for word in words]
    assert main(["local", "--task", "digits", *given, "--store", str(tmp_path)]) == 2
    err = capfd.readouterr().err
    assert told in err and "Traceback" not in err and len(err.strip().splitlines()) == 1
