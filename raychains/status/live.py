"""The page of `raychains status --web`: the progress of a run, a sweep or a store in a browser, which it reads anew by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

from raychains.core.errors import UserError
from raychains.core.ports import check_free
from raychains.planning import duration
from raychains.plotting.tables import html
from raychains.report import page, tables
from raychains.report.figures import learning, samples
from raychains.status import text
from raychains.status.reading import Reader
from raychains.status.state import RunState, State, StoreState, SweepState

FIGURES = {"samples": samples.drawing, "learning": learning.drawing}
"""Figures that have something to show while a run goes on."""
DRAWING = 0.1
"""Share of the time in which figures may be drawn: a long run on slow storage has many files of progress."""
NOTHING: Mapping[str, Any] = {"bars": (), "failed": (), "heading": "", "columns": (), "rows": (), "more": ()}
"""Parts that pages of sweeps and stores lack."""


@dataclass
class Page:
    """One run, sweep or store, as often as it is looked at."""

    reader: Reader
    chains: int
    """Chains that are shown at most."""
    results: str = ""
    figures: list[page.Figure] = field(default_factory=list)
    draw_at: float = 0.0
    """Time from which on the figures are drawn anew."""

    def draw(self, every: float, home: bool) -> bytes:
        """Return the page now; ``home``: with a link to the store that it belongs to."""
        state = self.reader.read()
        if isinstance(state, RunState) and time.monotonic() >= self.draw_at:
            self._draw_figures(every)
        first, *rest = (line.strip() for line in text.head(state))
        parts = {"results": self.results, "figures": self.figures, **_parts(state, self.chains)}
        every_text = duration.text(every)
        return page.filled(
            "live.html.j2",
            every=every_text,
            at=time.strftime("%H:%M:%S %Z"),
            home=home,
            title=first,
            lines=rest,
            **{**NOTHING, **parts},
        )

    def _draw_figures(self, every: float) -> None:
        began = time.monotonic()
        if (run := self.reader.run_data()) is not None:
            self.results = html(tables.comparison(run)[0], "arms", "results") if len(run.results) else ""
            self.figures = list(page.drawn(None, FIGURES, run)[0].values())
        now = time.monotonic()
        self.draw_at = now + max(every / 2, (now - began) / DRAWING)


def _parts(state: State, most: int) -> dict[str, Any]:
    """Return the template's values for a state; the rows of its table are states, links and cells."""
    if isinstance(state, StoreState):
        rows = [(line.state, f"{line.kind}s/{quote(line.name)}", text.store_row(line)) for line in state.lines]
        return {"kind": "raychains", "heading": "Runs and sweeps", "columns": text.STORE_COLUMNS, "rows": rows}
    if isinstance(state, SweepState):
        return {"kind": "raychains sweep"}
    chains, more = text.chosen(state.chains, most)
    return {
        "kind": f"raychains {state.command}",
        "bars": [
            ("Gradient evaluations", state.gradients, state.to_spend),
            *((arm.label, arm.gradients, arm.to_spend) for arm in state.arms if len(state.arms) > 1),
        ],
        "failed": [f"{c.digest[:12]}: {c.reason}" for c in state.chains if c.state == "failed" and c.reason],
        "heading": "Chains",
        "columns": list(text.COLUMNS),
        "rows": [(chain.state, "", text.row(chain)) for chain in chains],
        "more": more,
    }


@dataclass
class Site:
    """The page of a path; of a store also those of its runs and sweeps.

    Args:
        path: STORE/runs/NAME, STORE/sweeps/NAME or STORE.
        every: seconds after which a page that is looked at loads itself again.
        chains: shown at most.

    Raises:
        UserError: nothing of that kind is there.
    """

    path: str
    every: float
    chains: int

    def __post_init__(self) -> None:
        self._home = Reader(self.path)
        self._home.read()
        self._pages = {"": Page(self._home, self.chains)}
        self._drawn: dict[str, tuple[float, bytes]] = {}
        self._lock = threading.Lock()  # matplotlib draws in one thread at a time

    def get(self, place: str) -> tuple[HTTPStatus, bytes]:
        """Return the answer to a request for an address's path: a status of HTTP, and a page or a line."""
        below = unquote(place.partition("?")[0]).strip("/")
        with self._lock:
            at, data = self._drawn.get(below, (0.0, b""))
            if data and time.monotonic() - at < self.every / 2:  # many may look at it
                return HTTPStatus.OK, data
            try:
                if below not in self._pages:
                    self._pages[below] = Page(self._home.below(*below.partition("/")[::2]), self.chains)
                data = self._pages[below].draw(self.every, home=bool(below))
            except UserError as error:  # StorageAway, too
                there = below in self._pages
                return HTTPStatus.SERVICE_UNAVAILABLE if there else HTTPStatus.NOT_FOUND, f"{error}\n".encode()
            self._drawn[below] = time.monotonic(), data
            return HTTPStatus.OK, data


def serve(site: Site, host: str, port: int, *, ready: Callable[[str], Any]) -> None:
    """Answer requests for a site's pages until KeyboardInterrupt.

    Args:
        site: the pages.
        host: address to listen at.
        port: port to listen at.
        ready: called with the address of the first page.

    Raises:
        UserError: nobody can listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "raychains", ""

        def do_GET(self) -> None:
            status, data = site.get(self.path)
            kind = "text/html" if status == HTTPStatus.OK else "text/plain"
            self.send_response(status)
            for name, value in {
                "Content-Type": f"{kind}; charset=utf-8",
                "Content-Length": str(len(data)),
                "Cache-Control": "no-store",
                "Refresh": f"{site.every:g}",  # with an error's line, too: storage that is away comes back
                "X-Content-Type-Options": "nosniff",
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = check_free(host, port)

    with Server((host, port), Handler) as server:
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        server.serve_forever()
