"""Writes the parts of docs/samplers.md that come from the code: `python docs/build.py`. A test compares them.

The tables of methods and settings come from the samplers' docstrings and signatures; everything else on the page is written by hand
and left alone.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from raychains import samplers
from raychains.methods import METHODS
from raychains.samplers import Sampler

PAGE = Path(__file__).parent / "samplers.md"


def paragraphs(kind: type[Sampler]) -> list[str]:
    """The docstring's paragraphs, each in one line."""
    text = inspect.getdoc(kind) or ""
    return [" ".join(p.split()).replace("``", "`") for p in re.split(r"\n\s*\n", text)]


def paragraph(kind: type[Sampler], begins: str) -> str:
    """The paragraph that begins with a word and a colon, without them."""
    found = [p for p in paragraphs(kind) if p.startswith(f"{begins}: ")]
    if len(found) != 1:
        raise ValueError(f"{kind.__name__} needs one paragraph that begins with '{begins}:', it has {len(found)}")
    return found[0].removeprefix(f"{begins}: ")


def settings(kind: type[Sampler]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of the settings in the signature's order, with the docstring's words."""
    doc = inspect.getdoc(kind) or ""
    arguments = doc.partition("Args:\n")[2].partition("\n\n")[0]
    meanings = {
        m[1]: " ".join(m[2].split()).replace("``", "`")
        for m in re.finditer(r"^(\w+): (.*?)(?=^\w+: |\Z)", textwrap.dedent(arguments), flags=re.M | re.S)
    }
    found = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if name == "params":
            continue
        default = "required" if parameter.default is inspect.Parameter.empty else repr(parameter.default)
        found.append((name, default, meanings[name]))
    return found


def method_table() -> str:
    """One row per method: names, equation, target, cost, paper."""
    rows = ["| method | update | target density | settings | gradients per step | paper |", "|---|---|---|---|---|---|"]
    for name, kind in samplers.KINDS.items():
        names = ", ".join(f"`{n}`" for n, m in METHODS.items() if m.kind == name)
        own = [
            f"`{n}`"
            for n, _, _ in settings(kind)
            if n not in ("lr", "num_data", "temperature", "weight_decay", "seed", "lanes")
        ]
        cells = [
            f"**{kind.__name__}**: {names}", paragraphs(kind)[0], paragraph(kind, "Target"), ", ".join(own) or "–",
            str(kind.gradients_per_step), paragraph(kind, "Source"),
        ]  # fmt: skip
        rows.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(rows)


def settings_tables() -> str:
    """Per sampler a table of its settings beside those that all share."""
    parts = []
    for kind in samplers.KINDS.values():
        rows = [r for r in settings(kind) if r[0] not in ("seed", "lanes")]
        table = ["| setting | default | meaning |", "|---|---|---|"]
        table += [f"| `{n}` | {d if d == 'required' else f'`{d}`'} | {m}" + " |" for n, d, m in rows]
        parts.append(f"### {kind.__name__}\n\n" + "\n".join(table))
    return "\n\n".join(parts)


def names_table() -> str:
    """What each name stands for."""
    rows = ["| name | sampler | schedule | further settings |", "|---|---|---|---|"]
    for name, method in METHODS.items():
        plan = ", ".join(f"{k} = {v:g}" for k, v in method.plan.items()) or "–"
        rows.append(f"| `{name}` | `{method.kind}` | {method.schedule}{', always' if method.fixed else ''} | {plan} |")
    return "\n".join(rows)


PARTS = {"names": names_table, "methods": method_table, "settings": settings_tables}


def filled(page: str) -> str:
    """The page with every generated part written anew between its markers."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"{PAGE} needs the markers {begin} and {end} once each")
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n\n{make()}\n\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
