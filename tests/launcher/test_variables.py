"""Each environment variable that the pages and the files for clusters name is one that somebody reads."""

from __future__ import annotations

import ast
import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import raychains as rc
from tests.launcher.constraints import ROOT

NAMED = re.compile(r"(?<![\w/])[A-Z][A-Z0-9]+_[A-Za-z0-9_]+\b(?=[=`,;:)}\s\"'])")
"""A name as variables have them."""
OTHERS = {
    "AWS_DEFAULT_REGION": "the AWS client in pyarrow, and boto3",
    "SLURM_CPUS_PER_TASK": "Slurm sets it in a batch script",
    "SLURM_JOB_NODELIST": "Slurm sets it in a batch script",
    "SLURM_NNODES": "Slurm sets it in a batch script",
    "DEBIAN_FRONTEND": "Debian's debconf",
    "MLFLOW_TRACKING_URI": "mlflow, an extra of which the tests have no copy",
    "WANDB_ENTITY": "wandb, an extra of which the tests have no copy",
    "WANDB_MODE": "wandb, an extra of which the tests have no copy",
    "UV_PYTHON": "uv, and Ray's hook for it",
    "GPU_FLAGS": "a variable of the Makefile",
    "BUILT_IN": "a constant of raychains/report/figures",
    "NAMES_WRITTEN": "a constant of raychains/core/registry.py",
    "ONE_COSINE": "a constant of raychains/planning/thinning.py",
}
"""Who else reads a variable."""


def named() -> Iterator[str]:
    files = [ROOT / "cluster.yaml", ROOT / "README.md", *(ROOT / "deploy").rglob("*"), *(ROOT / "docs").rglob("*.md")]
    for file in files:
        if file.is_file():
            yield from NAMED.findall(file.read_text())


def constants(folder: Path) -> Iterator[str]:
    """The texts of a package's code."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def read_by_ray(names: set[str]) -> set[str]:
    """Those of the names that Ray reads: Python by the whole name, the settings of its C++ are `RAY_` before a field's
    name."""
    folder = Path(ray.__file__).parent
    fields = {name: name.removeprefix("RAY_").encode() + b"\0" for name in names if name.removeprefix("RAY_").islower()}
    with (folder / "_raylet.so").open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = {name for name, field in fields.items() if text.find(field) >= 0}
    quoted = re.compile(rf"[\"']({'|'.join(sorted(names - fields.keys()))})[\"']".encode())
    for file in folder.rglob("*.py"):
        found |= {name.decode() for name in quoted.findall(file.read_bytes())}
    return found


@pytest.mark.long
def test_a_named_variable_is_read() -> None:
    names = set(named())
    assert {"RAYCHAINS_STORE", "RAYCHAINS_DATA", "RAY_AUTH_MODE", "AWS_DEFAULT_REGION"} <= names
    ours = set(constants(Path(rc.__file__).parent))
    others = names - ours - OTHERS.keys()
    assert others - read_by_ray(others) == set()
    assert OTHERS.keys() <= names, "nobody names these any more"
