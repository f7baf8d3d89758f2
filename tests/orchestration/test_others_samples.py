"""Samples in a store that no chain of the run wrote: an evaluation ends with one line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import raychains as rc
from raychains.core.errors import RaychainsError
from tests.fuzz import made
from tests.fuzz.test_hostile_stores import CHANGES, rewritten


@pytest.mark.parametrize("kind", ["nan", pytest.param("missing", marks=pytest.mark.long)])
@pytest.mark.usefixtures("ray_session")
def test_an_evaluation_says_which_file_is_wrong(tmp_path: Path, kind: str) -> None:
    run = made.make(tmp_path / "store")
    change, word = CHANGES[kind]
    file = rewritten(tmp_path / "store", change)
    with pytest.raises(RaychainsError) as caught:
        rc.evaluate(str(run), progress=False)
    text = str(caught.value)
    assert caught.value.exit_status == 2 and word in text and file.name in text and "\n" not in text, text
