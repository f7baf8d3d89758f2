"""Bodies of requests that arrive slowly, without Serve: how many are read at once, and which one gives way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request

from raychains.inference.requests import Refused
from raychains.orchestration import serve_deployment


class Client:
    """Sends a body in pieces, the last one when it is told to."""

    def __init__(self) -> None:
        self.ends = asyncio.Event()
        self._pieces = [b"{", b"}"]

    async def receive(self) -> Mapping[str, Any]:
        piece = self._pieces.pop(0)
        if not self._pieces:
            await self.ends.wait()
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}

    def request(self) -> Request:
        return Request({"type": "http", "headers": []}, self.receive)


async def read(clients: list[Client], last: Client) -> list[Any]:
    """What becomes of the bodies of clients that come one after another; the last ones send theirs to the end."""
    arriving: list[asyncio.Timeout] = []
    tasks = []
    for client in [*clients, last]:
        tasks.append(asyncio.create_task(serve_deployment.read_body(client.request(), 1000, arriving)))
        await asyncio.sleep(0)
    last.ends.set()
    assert await tasks[-1] == b"{}"
    for client in clients[-3:]:
        client.ends.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert arriving == []
    return found


def test_of_too_many_bodies_the_oldest_give_way_and_others_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome() -> list[Any]:
        return await read([Client() for _ in range(10)], Client())

    monkeypatch.setattr(serve_deployment, "MOST_ARRIVING", 4)
    found = asyncio.run(outcome())
    assert [one.status for one in found[:7]] == [503] * 7 and found[7:] == [b"{}"] * 4
    assert str(found[0]) == "body must arrive faster: 4 others are arriving; send it again"


def test_a_body_that_does_not_arrive_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def outcome() -> None:
        await serve_deployment.read_body(Client().request(), 1000, [])

    monkeypatch.setattr(serve_deployment, "BODY_WITHIN", 0.01)
    with pytest.raises(Refused, match="within") as refused:
        asyncio.run(outcome())
    assert refused.value.status == 408
