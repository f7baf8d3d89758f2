"""From a folder of classes to top-1 and top-5 errors: prepared, sampled by a group whose rank is killed, evaluated."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import raychains as rc
from raychains.api.commands import prepare
from raychains.chain.chain import Chain
from raychains.core.config import Prepare, Run
from raychains.core.sample import Sample, tensors_sha256
from raychains.planning import methods
from raychains.tasks.from_options import make_task
from tests.groups.test_groups import Killing
from tests.orchestration.worlds import stored_hashes

TINY = "tiny-imagenet-50"


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """250 of the sample's training pictures and 100 of its validation, all classes."""
    if not os.environ.get("RAYCHAINS_DATA"):
        pytest.skip("RAYCHAINS_DATA is not set: the Tiny-ImageNet sample is needed")
    source = Path(os.environ["RAYCHAINS_DATA"]) / TINY
    for split, count in (("train", 5), ("val", 2)):
        for folder in sorted((source / split).iterdir()):
            (tmp_path / "raw" / split / folder.name).mkdir(parents=True)
            for file in sorted(folder.iterdir())[:count]:
                shutil.copy(file, tmp_path / "raw" / split / folder.name)
    return tmp_path / "raw"


@pytest.mark.long
@pytest.mark.usefixtures("ray_session")
def test_a_prepared_set_is_sampled_by_a_group_and_evaluated(
    raw: Path, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    manifest, _ = prepare(
        Prepare(set="tiny", source=str(raw), to=str(tmp_path / "data" / "tiny"), shards=3, row_group=16)
    )
    assert {s: p.images for s, p in manifest.splits.items()} == {"train": 250, "val": 100}
    settings: dict[str, Any] = {
        "task": "imagefolder-resnetpp", "task_settings": ("set=tiny", "size=32", "depth=8", "width=8"), "chains": 1,
        "sampler": "csghmc", "epochs": 40, "cycles": 2, "samples_per_cycle": 1, "batch_size": 50, "micro_batch": 25,
        "checkpoint_every": 0.5, "evaluators": 1, "lr": 0.02, "data_root": str(tmp_path / "data"),
    }  # fmt: skip
    listener = Killing(at=12)
    result = rc.run(**settings, workers_per_chain=2, store=store, name="tiny", callback=listener)
    assert listener.killed and listener.gone

    monkeypatch.setenv("RAYCHAINS_DATA", str(tmp_path / "data"))
    given = Run(**settings)
    method = methods.resolve(given, task=make_task(given, given.task), sampler="csghmc")
    alone = [e for e in Chain(method.spec, method.task) if isinstance(e, Sample)]
    assert [*stored_hashes(store, result.comparison).values()] == [tensors_sha256(s.tensors) for s in alone]
    assert len(alone) == 2

    (row,) = result.results().to_dict("records")
    test = method.task.splits()["test"]
    blocks = [[test.predict(s.tensors, shard) for s in alone] for shard in range(test.shards)]
    expected = test.summarise([test.reduce(b, shard) for shard, b in enumerate(blocks)])[0]
    assert row["error"] == pytest.approx(expected["error"]) and row["top5_error"] == pytest.approx(
        expected["top5_error"]
    )
    assert row["nll"] == pytest.approx(expected["nll"], rel=1e-5) and 0 < row["top5_error"] < row["error"] <= 1
