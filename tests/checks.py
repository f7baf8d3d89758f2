"""What several tests ask of an error meant for people: one line that names what was wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from raychains.core.errors import UserError


@contextmanager
def refused(*words: str) -> Iterator[None]:
    """The body raises a `UserError` of a single line in which each of ``words`` occurs."""
    with pytest.raises(UserError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message, message
    for word in words:
        assert re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message), f"{word!r} is not in {message!r}"
