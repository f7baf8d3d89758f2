"""The run's HTML page: one file that needs nothing but itself, and its figures as files beside it."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

import raychains
from raychains.errors import RaychainsError
from raychains.planning import Comparison
from raychains.report import facts, results, table, troubles, views
from raychains.report.figures import MAKERS, sections
from raychains.report.material import Material
from raychains.report.style import THEMES, Drawing, render
from raychains.store import RunStore

log = logging.getLogger(__name__)


CONTENTS_FROM = 7
"""Figures from which on the page begins with a list of them."""


@dataclass(frozen=True)
class Figure:
    """A drawing with its images as data URIs."""

    drawing: Drawing
    light: str
    dark: str
    files: list[tuple[str, str]]
    """What its files are called and where they lie, seen from the page."""


def write(store: RunStore, comparison: Comparison) -> str:
    """Draw the report from what the store holds: ``report.html`` and ``figures/<name>.svg``, ``.png`` and ``.parquet``.

    Returns where the page lies. It is complete in itself: styles and figures, light and dark, are inside it.
    """
    material = Material(store, comparison)
    figures, failed = drawn(material.store, MAKERS, material)
    by_section = sections(figures)
    arms = comparison.arms
    colours = {a.name: [theme.colour(material.looks[a]) for theme in THEMES] for a in arms}
    told = material.plan.get("notes")
    notes = [str(note) for note in told] if isinstance(told, list) else []
    text = template("template.html.j2").render(
        style=style(),
        store=store,
        comparison=comparison,
        command=material.plan.get("command", "run"),
        headline=facts.headline(material),
        facts=facts.head(material),
        table=table.build(material),
        minor=table.minor(material),
        views=views.build(material),
        colours=colours,
        sections={heading: [figures[name] for name in names] for heading, names in by_section.items()},
        contents=len(figures) >= CONTENTS_FROM,
        failed=failed,
        troubles=troubles.of(material),
        notes=[n for n in notes if not n.startswith("warning: ")],
        warnings=[n.removeprefix("warning: ") for n in notes if n.startswith("warning: ")],
        columns=facts.SETTINGS,
        settings=[(a, facts.settings(a, comparison.unit), facts.raw(a)) for a in arms],
        version=raychains.__version__,
    )
    return store.write_file("report.html", text.encode(errors="replace"))  # half a surrogate pair has no bytes


def drawn(
    store: RunStore, makers: Mapping[str, Callable[..., Drawing | None]], *about: Any, stem: str = ""
) -> tuple[dict[str, Figure], list[str]]:
    """The figures of a page by name, published as files too, and the names of those that could not be drawn.

    Args:
        store: the folder that the page lies in.
        makers: by name; one that gives None has nothing to show.
        about: what makers are given.
        stem: begins the files' names.
    """
    made: dict[str, Figure] = {}
    failed: list[str] = []
    for name, make in makers.items():
        try:
            drawing = make(*about)
            if drawing is not None:
                made[name] = published(store, drawing, stem + name)
        except RaychainsError as error:
            log.warning("figure %s could not be drawn: %s", name, error)
            failed.append(name)
        except Exception:  # hours of sampling end in this page: one damaged file must not cost the rest of it
            log.exception("figure %s could not be drawn", name)
            failed.append(name)
    return made, failed


def published(store: RunStore, drawing: Drawing, name: str) -> Figure:
    """A drawing's images and numbers as files ``figures/<name>.…`` of a run's folder, and as a page holds them."""
    images = render(drawing)
    links = [("SVG", f"figures/{name}.svg"), ("PNG", f"figures/{name}.png")]
    for (_, file), data in zip(links, (images.svg, images.png), strict=True):
        store.write_file(file, data)
    if drawing.data:
        results.write_rows(store, f"figures/{name}", drawing.data)
        links.append(("parquet", f"figures/{name}.parquet"))
    return Figure(drawing, _data_uri(images.svg), _data_uri(images.dark_svg), links)


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def style() -> Markup:
    """The pages' style sheet: ours, without anything of the person's."""
    return Markup(resource("style.css"))


def template(name: str) -> Template:
    """One of our templates; whatever people wrote is escaped in it."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.loader = FunctionLoader(resource)
    return environment.get_template(name)


def resource(name: str) -> str:
    """The text of a file beside this one."""
    return files("raychains.report").joinpath(name).read_text(encoding="utf-8")
