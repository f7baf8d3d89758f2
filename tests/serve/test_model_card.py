"""The card's example is a command that asks rightly, and nothing that a client or a file says becomes markup or a
command."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest

from raychains.inference import model_card
from raychains.inference.requests import Accepted, InputForm, parse
from tests.serve.client import JSON

URL = "http://127.0.0.1:8000/"
ABOUT = {"task": "t", "arm": "a", "run": "r", "kind": "classification", "samples": 3, "digests": ["ab" * 32, "cd" * 32]}


def accepted(*shape: int, dtype: str = "float32", images: bool = False) -> Accepted:
    return Accepted(kind="classification", form=InputForm(shape=shape, dtype=dtype), images=images, rows=8)


@pytest.mark.parametrize(
    "takes", [accepted(3), accepted(2, 2), accepted(5, dtype="int64"), accepted(1, 4, 4, dtype="uint8", images=True)]
)
def test_the_example_is_a_request_that_is_taken(takes: Accepted) -> None:
    words = shlex.split(model_card.example(takes, URL))
    assert words[:4] == ["curl", URL, "-H", f"Content-Type: {JSON}"]
    assert takes.form is not None
    assert parse(words[-1].encode(), JSON, {}, takes).inputs.shape == (1, *takes.form.shape)


def test_a_large_input_is_sent_as_a_file() -> None:
    python, curl = model_card.example(accepted(3, 32, 32, dtype="uint8", images=True), URL).splitlines()
    assert "numpy.zeros((1, 3, 32, 32), 'uint8')" in shlex.split(python)[2]
    assert shlex.split(curl)[-2:] == ["--data-binary", "@inputs.npy"]
    assert np.zeros((1, 3, 32, 32), "uint8").nbytes == 3072


def test_a_page_escapes_what_others_wrote() -> None:
    card = model_card.card({**ABOUT, "task": "<script>", "arm": "a&b"}, accepted(3), URL)
    page = model_card.page(card)
    assert "<script>" not in page and "&lt;script&gt;: 3 samples" in page and "a&amp;b" in page
    assert json.loads(json.dumps(card))["input"] == {"shape": ["n", 3], "dtypes": ["float32"]}


def test_an_address_holds_no_command_of_a_client() -> None:
    assert model_card.address("host:80", "/digits") == "http://host:80/digits/"
    assert model_card.address("[::1]:8000", "") == "http://[::1]:8000/"
    for host in ("'; rm -rf .", "a b", "", "a/$(id)", "é"):
        assert model_card.address(host, "/x y") == URL
