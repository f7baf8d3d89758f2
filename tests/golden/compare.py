"""`make golden`: the samples of this working tree and of an earlier commit, made on this machine, byte for byte.

Both run every chain of tests/golden/chains.py from its start, and again from a checkpoint on disk after SIGKILL; this
tree also continues the earlier commit's checkpoints; and both run `raychains run` once.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.golden import chains, data
from tests.golden.values import differences

HERE = Path(__file__).parents[2]
SCRIPT = Path(chains.__file__)
RUN = ["run", "--task=digits", "--sampler=csghmc", "--chains=2", "--repeats=1", "--epochs=8", "--cycles=2"]
RUN += ["--samples-per-cycle=1", "--name=golden"]


def environment(tree: Path, root: Path) -> dict[str, str]:
    """For processes that import ``tree``'s raychains and read the data below ``root``."""
    own = {k: v for k, v in os.environ.items() if k not in ("RAY_ADDRESS", "PYTHONSAFEPATH")}
    return own | {
        "PYTHONPATH": str(tree),
        "GOLDEN_TREE": str(tree),
        "RAYCHAINS_DATA": str(root),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def done(command: list[str], **options: Any) -> None:
    """Run a command; end with its output if it fails."""
    finished = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if finished.returncode:
        sys.exit(f"golden: {' '.join(command)} failed:\n{finished.stdout[-4000:]}")


def killed(command: list[str], env: dict[str, str]) -> None:
    """Run a command until it says that its checkpoints are written, and kill it."""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    if said.strip() != chains.READY:
        sys.exit(f"golden: {' '.join(command)} ended before its checkpoints were written")


def sample(tree: Path, folder: Path, root: Path) -> None:
    """Everything that one tree does, into ``folder``: fresh.json, checkpoints, resumed.json and store."""
    env = environment(tree, root)
    killed([sys.executable, str(SCRIPT), "run", str(folder)], env)
    resume(tree, folder, folder / "resumed.json", root)
    # -P: the current folder is not searched, so that a tree cannot stand in for another.
    done([sys.executable, "-P", "-m", "raychains.cli", *RUN, "--store", str(folder / "store")], env=env, cwd=folder)


def resume(tree: Path, folder: Path, out: Path, root: Path) -> None:
    """``tree`` continues the checkpoints in ``folder``."""
    done([sys.executable, str(SCRIPT), "resume", str(folder), str(out)], env=environment(tree, root))


def stored(store: Path) -> dict[str, str]:
    """The sha256 of every sample and spec of a store."""
    files = [*store.glob("chains/*/samples/*"), *store.glob("chains/*/spec.json")]
    return {str(file.relative_to(store)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def compared(base: Path, head: Path, across: Path) -> Iterator[str]:
    """One line per difference."""
    fresh = {tree: json.loads((tree / "fresh.json").read_text()) for tree in (base, head)}
    yield from differing("fresh", fresh[base], fresh[head])
    rest = {name: [e for e in told if e["step"] > chains.CUT] for name, told in fresh[base].items()}
    resumed = {"earlier commit": base / "resumed.json", "this tree": head / "resumed.json"}
    resumed["this tree from the earlier commit's checkpoints"] = across
    for what, file in resumed.items():
        yield from differing(f"resumed, {what}", rest, json.loads(file.read_text()))
    samples = {tree: stored(tree / "store") for tree in (base, head)}
    if not any("/samples/" in name for name in samples[base]):
        yield "raychains run: the earlier commit stored no samples"
    yield from differing("raychains run", samples[base], samples[head])


def differing(what: str, base: dict[str, Any], head: dict[str, Any]) -> Iterator[str]:
    """For each chain or file the first thing that differs."""
    for name in sorted(base.keys() | head.keys()):
        if name not in base or name not in head:
            yield f"{what}: {name} is only {'in this tree' if name in head else 'in the earlier commit'}"
        elif base[name] != head[name]:
            lines = differences(base[name], head[name], f"{what}: {name}", 0.0)
            yield lines[0][:200]


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """A git worktree of ``commit``."""
    done(["git", "worktree", "add", "--detach", str(folder), commit], cwd=HERE)
    try:
        yield folder
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(folder)], cwd=HERE, check=False)


def main(commit: str) -> int:
    """Compare with ``commit``; returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        folder = Path(temporary)
        root = data.write(folder / "data")
        with checked_out(commit, folder / "tree") as tree:
            sample(tree, folder / "base", root)
            sample(HERE, folder / "head", root)
            resume(HERE, folder / "base", folder / "across.json", root)
        lines = list(compared(folder / "base", folder / "head", folder / "across.json"))
        count = len(json.loads((folder / "base" / "fresh.json").read_text()))
        files = len(stored(folder / "base" / "store"))
    print(*lines, sep="\n", end="\n" if lines else "")
    print(f"golden: {len(lines)} differences from {commit} in {count} chains and {files} stored files")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
