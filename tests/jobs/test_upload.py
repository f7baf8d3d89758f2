"""What `ray job submit --working-dir .` uploads of a checkout, by Ray's own packing."""

from __future__ import annotations

import logging
import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ray._private.runtime_env import packaging

import raychains as rc

REPOSITORY = Path(rc.__file__).parents[1]
MIB = 2**20


def packed(folder: Path, to: Path) -> tuple[int, set[str]]:
    packaging.create_package(str(folder), to, include_gitignore=True, logger=logging.getLogger("quiet"))
    with zipfile.ZipFile(to) as package:
        return to.stat().st_size, {name for name in package.namelist() if not name.endswith("/")}


def test_a_checkout_is_uploaded_with_all_that_a_job_imports_and_nothing_large(tmp_path: Path) -> None:
    size, files = packed(REPOSITORY, tmp_path / "package.zip")
    assert size < 5 * MIB
    needed = {
        str(path.relative_to(REPOSITORY))
        for part in ("raychains", "jobs")
        for path in (REPOSITORY / part).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(needed) > 200 and needed <= files, needed - files
    assert "pyproject.toml" in files
    assert not {f for f in files if f.startswith((".git/", ".venv/", "runs/", "tests/", "docs/")) or f.endswith(".pyc")}


def test_stores_data_sets_and_environments_stay_behind_while_a_persons_own_files_go_along(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in (".gitignore", ".rayignore"):
        (checkout / name).write_text((REPOSITORY / name).read_text())
    digest = "0" * 64
    stay = (
        f"runs/chains/{digest}/samples/0-theta-1.safetensors",
        f"results/chains/{digest}/checkpoints/1-1.safetensors",
        "results/predictions/a/b.npy",
        "results/runs/a/figures/curves.parquet",
        "data/x.bin",
        "mine/MNIST/raw/a",
        "sets/cifar-10-batches-py/data_batch_1",
        "sets/cifar-10-python.tar.gz",
        "train-images-idx3-ubyte",
        ".venv/lib/a.py",
        "venv/lib/a.py",
        ".git/objects/a",
        "docs/images/a.png",
        "tests/test_a.py",
        "raychains/__pycache__/a.pyc",
    )
    go = ("mytask.py", "models/net.py", "start/trained.pt", "raychains/data/sets.py", "raychains/models/imagenet.py")
    for name in (*stay, *go):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes(b"0")
    assert packed(checkout, tmp_path / "package.zip")[1] == set(go)


@pytest.mark.parametrize("words", [["compare"], ["run"], ["sweep"], ["evaluate", "/store/runs/a"]], ids=" ".join)
def test_a_script_is_the_command_also_where_raychains_is_not_installed(words: list[str], tmp_path: Path) -> None:
    """From another folder, without the checkout on the path."""
    command, *arguments = words
    script = str(REPOSITORY / "jobs" / f"{command}.py")
    outside = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = [sys.executable, script, *arguments, "--no-such-option", "1"]
    done = subprocess.run(run, cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("raychains: unknown option --no-such-option;") and done.stderr.count("\n") == 1
    assert f"raychains {command} --help" in done.stderr


def test_the_script_for_imagenet_is_compare_with_table_3s_preset_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = str(REPOSITORY / "jobs" / "imagenet.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAYCHAINS_DATA", raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])  # which the script changes
    for words, line in (
        (
            ["--data-root", str(tmp_path), "--gpus-per-chain", "8"],
            "a prepared set must have a manifest.json, got none at",
        ),
        (["--preset=imagenet-tabel3"], "did you mean 'imagenet-table3'?"),
    ):
        monkeypatch.setattr(sys, "argv", [script, *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
        said = capsys.readouterr()
        assert ended.value.code == 2 and said.out in ("", "raychains compare: planning\n"), said
        assert said.err.count("\n") == 1 and line in said.err, said
