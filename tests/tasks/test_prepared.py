"""Tasks over prepared sets: batches, gradients, evaluation and resuming, whatever the decoders."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from raychains import tasks
from raychains.chain.chain import Chain
from raychains.core.config import Run
from raychains.core.errors import UserError
from raychains.core.sample import Sample, tensors_sha256
from raychains.data.prepared.feed import DECODERS, DecodingFailed
from raychains.data.prepared.manifest import Rows
from raychains.data.prepared.pictures import augmented, central, image_of
from raychains.evaluation.classification import Classification
from raychains.planning import methods
from raychains.tasks.from_options import make_task
from raychains.tasks.prepared import FolderLeNet, place_of
from tests.checks import refused
from tests.data.prepared.made import folder_of_classes, prepared

SIZE, WINDOW, BATCH = 32, 3, 8


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    prepared(folder_of_classes(folder / "raw"), folder / "small")
    return folder


@pytest.fixture(autouse=True)
def data(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", str(root))


def task() -> FolderLeNet:
    made = tasks.make("imagefolder-lenet", set="small", size=SIZE, window=WINDOW)
    assert isinstance(made, FolderLeNet)
    return made


def hashes(chain: Chain) -> list[str]:
    return [tensors_sha256(e.tensors) for e in chain if isinstance(e, Sample)]


def chain() -> Chain:
    given = Run(
        task="imagefolder-lenet", task_settings=("set=small", f"size={SIZE}", f"window={WINDOW}"), sampler="csghmc",
        epochs=4, cycles=2, batch_size=BATCH, lr=0.01, samples_per_cycle=1,
    )  # fmt: skip
    method = methods.resolve(given, task=make_task(given, given.task), sampler="csghmc")
    return Chain(method.spec, method.task)


def test_the_next_chain_of_a_process_has_decoders_of_its_own_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = prepared(folder_of_classes(tmp_path / "raw"), tmp_path / "small")
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    made, (first, *_) = task(), manifest.splits["train"].shards
    shard = tmp_path / "small" / first.file
    good = shard.read_bytes()
    shard.write_bytes(b"\0" * len(good))
    with pytest.raises(DecodingFailed):
        for part in made.epoch(seed=5, batch_size=BATCH):
            made.inputs(part)
    shard.write_bytes(good)
    other = task()
    for mine, theirs in zip(*(t.epoch(seed=6, batch_size=BATCH) for t in (made, other)), strict=True):
        assert torch.equal(made.inputs(mine), other.inputs(theirs))


@pytest.mark.parametrize(
    ("root", "place"),
    [
        ("s3://bucket/data/", "s3://bucket/data/small"),
        (
            "s3://bucket/data?scheme=http&endpoint_override=h:1",
            "s3://bucket/data/small?scheme=http&endpoint_override=h:1",
        ),
    ],
)
def test_a_set_lies_below_the_data_root_also_where_that_has_a_query(
    root: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYCHAINS_DATA", root)
    assert place_of("small") == place


def test_a_batch_is_its_pictures_cropped_and_normalised(root: Path) -> None:
    made = task()
    batches = made.epoch(seed=5, batch_size=BATCH)
    part = batches[2]
    rows = Rows(str(root / "small"), made.manifest, "train")
    jpegs = [j for g in range(len(rows.counts)) for j in rows.read(g)]
    pixels = np.stack([augmented(jpegs[i], SIZE, 5, int(i)) for i in part.indices]).astype(np.float64)
    expected = ((pixels / 255 - np.array(FolderLeNet.mean)) / np.array(FolderLeNet.std)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(made.inputs(part).numpy(), expected, rtol=1e-4, atol=1e-5)
    model = made.build_model(seed=0, lanes=1)
    loss = made.loss(model, part, torch.Generator())
    by_hand = torch.nn.functional.cross_entropy(
        model(torch.from_numpy(expected).float()), torch.from_numpy(rows.labels[part.indices])
    )
    assert float(loss.detach()) == pytest.approx(float(by_hand.detach()), rel=1e-4)
    halves = made.divide(part, 2)
    assert torch.equal(torch.cat([made.inputs(h) for h in halves]), made.inputs(part))
    for m in range(4):  # ranks read their own pieces only; an epoch's last batch may have fewer pictures than pieces
        mine = task()
        mine.share(m, m + 1, 4)
        for size, step in ((BATCH, 2), (BATCH, 7), (59, 1)):
            batch, _ = made.epoch(seed=5, batch_size=size)[step], mine.epoch(seed=5, batch_size=size)
            pieces = made.divide(batch, 4)
            assert len(pieces) == min(4, len(batch))
            if m < len(pieces):
                assert torch.equal(mine.inputs(pieces[m]), made.inputs(pieces[m]))
        mine.source.close()
    made.source.close()


def test_a_chain_that_stops_in_mid_epoch_goes_on_with_the_same_bytes_whatever_its_decoders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    straight = hashes(chain())
    assert len(straight) == 2
    first = chain()
    monkeypatch.setenv(DECODERS, "3")
    first.advance(stop=lambda: first.step == 11)  # of 8 steps an epoch
    assert first.step in range(8, 12)
    second = chain()
    second.load_state_dict(first.state_dict())
    assert hashes(second) == straight


def test_evaluation_sees_every_picture_once_centrally(root: Path) -> None:
    made = task()
    test = made.splits()["test"]
    assert isinstance(test, Classification) and test.shards == 1
    rows = Rows(str(root / "small"), made.manifest, "val")
    jpegs = [j for g in range(len(rows.counts)) for j in rows.read(g)]
    inputs = test.inputs[0:12]
    assert (inputs.numpy() == np.stack([central(j, SIZE).transpose(2, 0, 1) for j in jpegs])).all()
    assert torch.equal(test.inputs[4:9], inputs[4:9]) and len(test.inputs[5:5]) == 0
    model = made.build_model(seed=0, lanes=1)
    block = test.predict(model.state_dict(), 0)
    assert block.shape == (12, 3)
    with torch.no_grad():
        expected = torch.log_softmax(model(made.prepare(inputs)), 1).numpy()
    np.testing.assert_allclose(block, expected, atol=1e-5)
    assert set(made.splits()) == {"test", "train"} and test.fingerprint != made.splits()["train"].fingerprint


def test_it_is_the_same_task_wherever_the_set_lies_and_another_with_other_rows(root: Path, tmp_path: Path) -> None:
    spec = task().spec()
    shutil.copytree(root / "small", tmp_path / "small")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("RAYCHAINS_DATA", f"file://{tmp_path}")
        assert task().spec() == spec and tasks.build(spec).num_data == 60
        (tmp_path / "small" / "manifest.json").unlink()
        prepared(root / "raw", tmp_path / "small", row_group=5)
        with pytest.raises(UserError, match="data"):
            tasks.build(spec)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"set": "nowhere"}, ("manifest.json", "nowhere", "raychains prepare")),
        ({"set": "../small"}, ("set", "../small")),
        ({"set": 3}, ("set", "3")),
        ({"set": "small", "size": 0}, ("size", "0", "8")),
        ({"set": "small", "window": 0}, ("window", "0")),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], words: tuple[str, ...]) -> None:
    with refused(*words):
        tasks.make("imagefolder-lenet", **settings)


def test_other_inputs_are_refused() -> None:
    with refused("images", "uint8", "float32"):
        task().prepare(torch.zeros(2, 3, SIZE, SIZE))


def test_the_size_is_that_of_the_pictures_unless_it_is_given(root: Path) -> None:
    """A spec without a size, as earlier versions made it, means 224."""
    rows = Rows(str(root / "small"), task().manifest, "train")
    sides = [min(image_of(jpeg).size) for jpeg in rows.read(0)[:64]]
    made = tasks.make("imagefolder-lenet", set="small")
    assert isinstance(made, FolderLeNet) and made.size == max(32, int(np.median(sides))) < 224
    assert made.spec().settings == {"set": "small", "size": made.size}
    rebuilt = tasks.build(made.spec())
    assert isinstance(rebuilt, FolderLeNet) and rebuilt.size == made.size
    assert tasks.make("imagefolder-lenet", set="small", size=224).spec().settings == {"set": "small"}
    older = tasks.build(dataclasses.replace(made.spec(), settings={"set": "small"}))
    assert isinstance(older, FolderLeNet) and older.size == 224


def test_a_set_whose_pictures_are_gone_needs_a_size(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(root / "small", tmp_path / "small")
    for shard in (tmp_path / "small").rglob("*.parquet"):
        shard.unlink()
    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path))
    with refused("size must be given", "'small'"):
        tasks.make("imagefolder-lenet", set="small")
    assert tasks.make("imagefolder-lenet", set="small", size=32).spec().settings == {"set": "small", "size": 32}
