"""`make gpu-paper`: its chains are the table's, its uploads lose no byte, its page shows what the predictions say."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_paper import chain, data, page
from raychains.data import formats, sets, standins
from tests.processes import SECONDS, until

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import sys
sys.modules |= dict.fromkeys(("ray", "pytest", "pyarrow", "pandas"))  # importing any of them fails
from benchmarks.gpu_paper import chain
chain.CHECKPOINT_SECONDS = 0.0
sys.exit(chain.main(sys.argv[1:]))
"""
SMALL = ["--device", "cpu", "--epochs", "4", "--subset", "66"]
"""8 steps of ResNet-18 and 4 samples, with a checkpoint at each epoch and sample."""


@pytest.fixture
def needs_cifar10() -> None:
    if not os.environ.get("RAYCHAINS_DATA"):
        pytest.skip("RAYCHAINS_DATA is not set: the chains learn from CIFAR-10")


@pytest.mark.usefixtures("needs_cifar10")
def test_its_chains_are_those_of_the_table_at_scale_gpu() -> None:
    known = page.table1_chains()
    for method in chain.METHODS:
        for repeat in range(chain.REPEATS):
            assert known[chain.spec(method, repeat).digest] == (method, repeat)
    assert chain.spec("csghmc").digest != chain.spec("csghmc", precision="fp32").digest


# Uploads


def batch(count: int) -> bytes:
    """A file of CIFAR's layout with so many images: real ones where there are some."""
    if root := os.environ.get("RAYCHAINS_DATA"):
        images, labels = formats.read_batch((Path(root) / "cifar-10-batches-py" / "data_batch_2").read_bytes(), "batch")
    else:
        rng = np.random.default_rng(0)
        images, labels = rng.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, count)
    some = np.ascontiguousarray(images[:count].reshape(count, -1))
    names = [b"image_%d.png" % i for i in range(count)]
    return pickle.dumps({"batch_label": b"two", "labels": labels[:count].tolist(), "data": some, "filenames": names}, 3)


def test_an_upload_gives_the_same_bytes_at_less_than_two_thirds_of_the_size(tmp_path: Path) -> None:
    files = {"data_batch_1": batch(350), "test_batch": batch(100)}
    data.write_upload(tmp_path / "1", files, "cifar-10-batches-py")
    assert data.main(["unpack", str(tmp_path / "1"), str(tmp_path / "data")]) == 0
    for name, content in files.items():
        assert (tmp_path / "data" / "cifar-10-batches-py" / name).read_bytes() == content
    if os.environ.get("RAYCHAINS_DATA"):  # of random pixels nothing can be saved
        assert sum(p.stat().st_size for p in (tmp_path / "1").iterdir()) < 2 / 3 * sum(map(len, files.values()))


@pytest.mark.parametrize("kind", ["webp", "xz"])
def test_a_damaged_or_missing_upload_is_refused_in_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data.write_upload(tmp_path / "1", {"test_batch": batch(100)}, "cifar-10-batches-py")
    file = tmp_path / "1" / f"test_batch.{kind}"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    asked = ["unpack", str(tmp_path / "1"), str(tmp_path / "data")]
    assert data.main(asked) == 2
    assert capsys.readouterr().err == f"unpack: {file} is damaged: upload {tmp_path / '1'} again\n"
    file.unlink()
    assert data.main(asked) == 2
    assert capsys.readouterr().err == f"unpack: cannot read {file}: No such file or directory\n"
    assert not (tmp_path / "data").exists()


def test_stand_ins_are_not_packed_as_cifar10(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = standins.make(tmp_path / "root", corruptions=1)
    assert data.main(["pack", str(tmp_path / "to"), "--data-root", str(root)]) == 2
    assert "but c99cafc152244af753f735de768cd75f is published" in capsys.readouterr().err


# The page


def result(folder: Path, method: str, repeat: int = 0, **changes: Any) -> np.ndarray:
    """Write what a finished chain writes, with made-up predictions, and return these."""
    rng = np.random.default_rng([chain.METHODS.index(method), repeat])
    logits = rng.normal(size=(3, 500, 10)).astype(np.float32)
    logits[:, np.arange(500), sets.load("cifar10", "test").labels[:500].numpy()] += 3
    predictions = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    spec = chain.spec(method, repeat)
    about = {"method": method, "repeat": repeat, "train_images": 50_000, "digest": spec.digest, "spec": spec.to_json()}
    about |= {"environment": {"device": "NVIDIA H200", "torch": "2.11.0"}, "seconds": 360.0, "done": True}
    about |= {"images_per_second": 27_000.0, "measured": chain.measured(predictions), **changes}
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{method}-{repeat}.npy", predictions)
    (folder / f"{method}-{repeat}.json").write_text(json.dumps(about))
    return predictions


def error_of(predictions: np.ndarray) -> float:
    """The averaged predictive's error in per cent, by another way."""
    mean = np.exp(predictions.astype(np.float64)).mean(axis=0)
    return float(100 * np.mean(mean.argmax(axis=1) != sets.load("cifar10", "test").labels[: len(mean)].numpy()))


@pytest.mark.usefixtures("needs_cifar10")
def test_the_page_shows_the_errors_of_the_predictions_beside_the_papers_and_keeps_earlier_chains(
    tmp_path: Path,
) -> None:
    to = tmp_path / "pages"
    first = result(tmp_path / "a", "csghmc")
    assert page.main([str(tmp_path / "a"), "--to", str(to)]) == 0
    second = result(tmp_path / "b", "sghmc")
    assert page.main([str(tmp_path / "b"), "--to", str(to)]) == 0
    lines = {
        line.split("|")[1].strip(): line
        for line in (to / "table1" / "table.md").read_text().splitlines()
        if "|" in line
    }
    for label, predictions, published in (("cSGHMC", first, "4.27 ± 0.03"), ("SGHMC", second, "4.93 ± 0.10")):
        ours, paper = (text.strip() for text in lines[label].split("|")[2:4])
        assert float(ours.split()[0]) == pytest.approx(error_of(predictions), abs=0.051)
        assert paper.startswith(published)
    assert lines["cSGLD"].split("|")[2].strip().startswith("–")
    growth = page.Folder(page.Storage(str(to)), "", "table1").stored()["growth"]
    one = growth[(growth["row"] == "csghmc") & (growth["samples"] == 2)]["error"].item()
    assert one == pytest.approx(error_of(first[:2]))
    shown = (to / "table1" / "index.html").read_text()
    for text in ("2 of 16 chains", "NVIDIA H200", "27,000 training images a second", "4.29 to 4.35 %"):
        assert text in shown
    assert "SHORTENED" not in shown and (to / "table1" / "figures" / "samples.svg").exists()
    assert "unfinished" in (to / "README.md").read_text()


@pytest.mark.usefixtures("needs_cifar10")
def test_what_is_no_finished_chain_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*argv: object) -> str:
        assert page.main([str(one) for one in argv]) == 2
        return capsys.readouterr().err

    assert "results must be a folder with METHOD-REPEAT.json files" in told(tmp_path)
    result(tmp_path / "a", "csghmc", done=False)
    to = ("--to", tmp_path / "pages")
    assert "is not done, it has 3 samples" in told(tmp_path / "a", *to)
    result(tmp_path / "a", "csghmc")
    np.save(tmp_path / "a" / "csghmc-0.npy", result(tmp_path / "b", "sgld"))
    assert "does not hold the predictions of" in told(tmp_path / "a", *to)
    (tmp_path / "a" / "csghmc-0.npy").write_bytes(b"no array")
    assert "or its .npy file cannot be read" in told(tmp_path / "a", *to)
    assert "it holds results of raychains reproduce" in told(tmp_path / "b", "--to", ROOT / "docs" / "results")
    assert not (tmp_path / "pages").exists()


@pytest.mark.usefixtures("needs_cifar10")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["--minutes", "0"], "minutes must be above 0, got 0"),
        (["--data-root", "/nowhere"], "data_root must be an existing folder, got '/nowhere'"),
        (["--subset", "0"], "train_subset must"),
        pytest.param(  # it is noticed when the first epoch is over
            ["--epochs", "2", "--subset", "66", "--out", "/proc/results"],
            "No such file or directory: '/proc/results'",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_wrong_argument_is_one_line(
    wrong: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chain.main(["--device", "cpu", "--out", str(tmp_path), *wrong]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# The chain


@pytest.mark.long
@pytest.mark.usefixtures("needs_cifar10")
def test_a_killed_chain_continues_without_ray_to_the_predictions_of_make_gpu_paper_and_makes_the_page(
    tmp_path: Path,
) -> None:
    def start(out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", ALONE, *SMALL, "--out", str(out)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    straight, killed = tmp_path / "straight", tmp_path / "killed"
    asked = ["BARE=1", f"PYTHON={sys.executable}", "DEVICE=cpu", "EPOCHS=4", "SUBSET=66", f"OUT={straight}"]
    made = subprocess.run(["make", "gpu-paper", *asked], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    assert made.returncode == 0, made.stdout + made.stderr
    with start(killed) as first:
        until(lambda: (killed / "csghmc-0.pt").exists() or first.poll() is not None, "a checkpoint")
        first.kill()
    with start(killed) as again:
        told, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, told
    assert told.partition(" of 4 epochs")[0][-1] in "123", told
    assert (killed / "csghmc-0.npy").read_bytes() == (straight / "csghmc-0.npy").read_bytes()
    assert json.loads((killed / "csghmc-0.json").read_text())["done"]
    assert page.main([str(killed), "--to", str(tmp_path / "pages")]) == 0
    shown = (tmp_path / "pages" / "table1" / "index.html").read_text()
    assert "SHORTENED, which says nothing about the paper: cSGHMC: 4 epochs of 66 images" in shown
