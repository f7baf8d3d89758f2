"""The run's HTML page: one file that needs nothing but itself, and its figures as files in its folder."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

import raychains
from raychains.core.errors import RaychainsError, printable
from raychains.inference.run_data import RunData
from raychains.measures import Measure
from raychains.planning import Comparison
from raychains.plotting.style import Drawing, render
from raychains.plotting.tables import html
from raychains.report import run_summary, run_tables, suspicions
from raychains.report.figures import sections
from raychains.store import RunStore

log = logging.getLogger(__name__)


CONTENTS_FROM = 7
"""Figures from which on the page begins with a list of them."""
FEW_VIEWS = 12
"""Rows up to which the table of views is open."""


@dataclass(frozen=True)
class Figure:
    """A drawing with its image as a data URI."""

    drawing: Drawing
    image: str
    files: list[tuple[str, str]]
    """Kinds and places of its files, relative to the page."""


def write(
    store: RunStore,
    comparison: Comparison,
    own: Iterable[Measure] = (),
) -> str:
    """Draw the report from what the store holds: ``report.html`` and ``figures/<name>.svg``, ``.png`` and ``.parquet``.

    Args:
        store: the run's folder.
        comparison: its arms.
        own: measures of the user whose figures the page shows, too.

    Returns where the page lies. It is complete in itself: styles and figures, which follow the reader's colour scheme,
    are inside it.
    """
    run = RunData(store, comparison)
    headings = sections(own)
    figures, failed = drawn(store, {name: make for makers in headings.values() for name, make in makers.items()}, run)
    table, caption = run_tables.comparison(run)
    minor, views = run_tables.minor(run), run_tables.views(run)
    try:
        coordinates = run_tables.coordinates(run)
    except RaychainsError:  # a damaged table, which the figure of it has reported
        coordinates = None
    text = filled(
        "template.html.j2",
        store=store,
        comparison=comparison,
        command=run.plan.get("command", "run"),
        headline=run_summary.headline(run),
        summary=run_summary.head(run),
        table=html(table, "arms", "results"),
        caption=caption,
        missing=[*run_tables.missing(run), *suspicions.of_run(run)],
        minor=html(minor, "minor", "results") if minor else "",
        choice=html(choice, "choice", "results") if (choice := run_tables.choice(store)) else "",
        coordinates=html(coordinates, "coordinates", "results") if coordinates else "",
        views=html(views, "views", "views") if views else "",
        views_open=views is not None and len(views.rows) <= FEW_VIEWS,
        sections={
            heading: [figures[name] for name in makers if name in figures]
            for heading, makers in headings.items()
            if figures.keys() & makers.keys()
        },
        contents=len(figures) >= CONTENTS_FROM,
        failed=failed,
        failures=run_summary.failures(run),
        **notes(run.plan),
        settings=html(run_summary.settings(run), "settings", "settings exact"),
        specs=[(arm, run_summary.raw(arm)) for arm in comparison.arms],
    )
    return store.write_file("report.html", text)


def notes(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """A plan's notes as a page shows them: ``warnings`` before all else, the others as ``notes``."""
    stored = plan.get("notes")
    found = [str(note) for note in stored] if isinstance(stored, list) else []
    warnings = [note.removeprefix("warning: ") for note in found if note.startswith("warning: ")]
    return {"warnings": warnings, "notes": [note for note in found if not note.startswith("warning: ")]}


def drawn(
    store: RunStore, figures: Mapping[str, Callable[..., Drawing | None]], *about: Any, stem: str = ""
) -> tuple[dict[str, Figure], list[str]]:
    """The figures of a page by name, published as files too, and the names of those that could not be drawn.

    Args:
        store: the folder that the page lies in.
        figures: functions by name; one that returns None has nothing to show.
        about: their arguments.
        stem: begins the files' names.
    """
    made: dict[str, Figure] = {}
    failed: list[str] = []
    for name, make in figures.items():
        try:
            drawing = make(*about)
            if drawing is not None:
                made[name] = published(store, drawing, stem + name)
        except RaychainsError as error:
            log.warning("figure %s could not be drawn: %s", name, error)
            failed.append(name)
        except Exception:  # the page ends hours of sampling: one damaged file must not cost the rest of it
            log.exception("figure %s could not be drawn", name)
            failed.append(name)
    return made, failed


def published(store: RunStore, drawing: Drawing, name: str) -> Figure:
    """A drawing's images and numbers as files ``figures/<name>.…`` of a run's folder, and as a page holds them."""
    svg, png = render(drawing)
    links = [("SVG", f"figures/{name}.svg"), ("PNG", f"figures/{name}.png")]
    store.write_file(f"figures/{name}.svg", svg)
    store.write_file(f"figures/{name}.png", png)
    if drawing.data:
        store.write_table(f"figures/{name}", drawing.data)
        links.append(("parquet", f"figures/{name}.parquet"))
    return Figure(drawing, "data:image/svg+xml;base64," + base64.b64encode(svg).decode(), links)


def filled(template: str, **values: Any) -> bytes:
    """A page from a template of this folder, in which users' texts are escaped."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.loader = FunctionLoader(resource)
    style = Markup(resource("style.css"))  # without anything of the user's
    text = environment.get_template(template).render(style=style, version=raychains.__version__, **values)
    return printable(text).encode()


def resource(name: str) -> str:
    """The text of a file in this folder."""
    return files("raychains.report").joinpath(name).read_text(encoding="utf-8")
