"""The run's HTML page: one file that needs nothing but itself, and its figures as files beside it."""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

import raychains
from raychains.errors import RaychainsError
from raychains.planning import Comparison
from raychains.report import facts, table, troubles
from raychains.report.figures import MAKERS
from raychains.report.material import Material
from raychains.report.style import THEMES, Drawing, render
from raychains.store import RunStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Figure:
    """A drawing with its images as data URIs."""

    drawing: Drawing
    light: str
    dark: str


def write(store: RunStore, comparison: Comparison) -> str:
    """Draw the report from what the store holds: ``report.html`` and ``figures/<name>.svg`` and ``.png``.

    Returns where the page lies. It is complete in itself: styles and figures, light and dark, are inside it.
    """
    material = Material(store, comparison)
    figures, failed = _figures(material)
    arms = comparison.arms
    colours = {a.name: [theme.colour(material.looks[a]) for theme in THEMES] for a in arms}
    told = material.plan.get("notes")
    notes = [str(note) for note in told] if isinstance(told, list) else []
    text = _template().render(
        style=Markup(_resource("style.css")),  # ours, without anything of the person's
        store=store,
        comparison=comparison,
        command=material.plan.get("command", "run"),
        headline=facts.headline(material),
        facts=facts.head(material),
        table=table.build(material),
        colours=colours,
        figures=figures,
        failed=failed,
        troubles=troubles.of(material),
        notes=[n for n in notes if not n.startswith("warning: ")],
        warnings=[n.removeprefix("warning: ") for n in notes if n.startswith("warning: ")],
        columns=facts.SETTINGS,
        settings=[(a, facts.settings(a, comparison.unit), facts.raw(a)) for a in arms],
        version=raychains.__version__,
    )
    return store.write_file("report.html", text.encode(errors="replace"))  # half a surrogate pair has no bytes


def _figures(material: Material) -> tuple[list[_Figure], list[str]]:
    """The figures, published as files too, and the names of those that could not be drawn."""
    made: list[_Figure] = []
    failed: list[str] = []
    for name, make in MAKERS.items():
        try:
            drawing = make(material)
            if drawing is None:
                continue
            images = render(drawing)
            material.store.write_file(f"figures/{name}.svg", images.svg)
            material.store.write_file(f"figures/{name}.png", images.png)
        except RaychainsError as error:
            log.warning("figure %s could not be drawn: %s", name, error)
            failed.append(name)
            continue
        except Exception:  # hours of sampling end in this page: one damaged file must not cost the rest of it
            log.exception("figure %s could not be drawn", name)
            failed.append(name)
            continue
        made.append(_Figure(drawing, _data_uri(images.svg), _data_uri(images.dark_svg)))
    return made, failed


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_resource("template.html.j2"))


def _resource(name: str) -> str:
    return files("raychains.report").joinpath(name).read_text(encoding="utf-8")
