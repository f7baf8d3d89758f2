"""Many chains at once: the same answers as one look after another, in the order of the chains."""

from __future__ import annotations

from pathlib import Path

import pytest

from raychains.chain import Chain
from raychains.errors import UserError
from raychains.sample import Sample
from raychains.store import ChainStore, Root, index, opening
from raychains.tasks.mixture import Mixture25
from tests.orchestration.worlds import comparison


def test_finished_torn_begun_and_untouched_chains_are_told_apart(tmp_path: Path) -> None:
    root, specs = Root(tmp_path), comparison(Mixture25(), chains=20, steps=80, block=10).chains()
    whole, torn, begun = list(specs)[3], list(specs)[7], list(specs)[11]
    for digest in (whole, torn, begun):
        store = ChainStore(root, digest)
        store.begin(specs[digest], 5, {"from_step": 0})
        samples = [e for e in Chain(specs[digest], Mixture25()) if isinstance(e, Sample)]
        for sample in samples[: 1 if digest == begun else None]:
            store.publish_sample(sample, 5, {})
    ChainStore(root, whole).publish_progress([{"step": 80, "seconds": 2.5}], 80, 5)
    ChainStore(root, whole).finish()
    file = tmp_path / "chains" / torn / ChainStore(root, torn).sample_files()[-1]
    file.write_bytes(file.read_bytes()[:-1])
    found = opening.stored(root, specs)
    assert list(found) == list(specs)
    assert [d for d, chain in found.items() if chain.records is not None] == [whole]
    assert opening.finished(root, specs) == {whole}
    assert found[whole].records == ChainStore(root, whole).records() and found[whole].seconds == 2.5
    assert {d: chain.last_incarnation for d, chain in found.items() if chain.last_incarnation} == {torn: 5, begun: 5}


def test_a_newer_format_of_one_chain_is_an_error_of_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, specs = Root(tmp_path), comparison(Mixture25(), chains=40, steps=80, block=10).chains()
    with monkeypatch.context() as newer:
        newer.setattr(index, "FORMAT", index.FORMAT + 1)
        root.publish(f"chains/{list(specs)[30]}/samples.parquet", index.encode([{"file": "x"}], 0))
    with pytest.raises(UserError, match="newer"):
        opening.stored(root, specs)
