"""Write the generated parts of docs/reference: `python docs/build.py`. A test compares them with the committed pages.

samplers.md has tables of methods and settings from the samplers' docstrings and signatures, options.md a table of each
command's options from the dataclasses of `raychains.core.config`. Text outside the markers is written by hand and left
alone.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raychains import samplers, tasks
from raychains.cli import COMMANDS
from raychains.core import config
from raychains.core.options import Options, options_of
from raychains.planning.presets.named import PRESETS
from raychains.samplers import METHODS, Sampler

REFERENCE = Path(__file__).parent / "reference"
SHARED = {
    "step size on the mean-loss scale.",
    "N, the number of training data.",
    "T; 1 samples the posterior.",
    "strength λ of a Gaussian prior N(0, 1/(Nλ)).",
    "N; not used by the update.",
    "0, the only value allowed.",
    "λ, the strength of the L2 penalty ½λ‖θ‖².",
}
"""Meanings that samplers.md states once for all samplers and for all optimisers."""
LISTED = {
    " ".join(METHODS): "samplers.md#methods-by-name",
    ", ".join(PRESETS): "presets.md",
    ", ".join(sorted(tasks.NAMES)): "tasks.md",
}
"""Names that help texts list, and the page that has them with more."""


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
    rows = ["| method | update | target density | gradients per step | paper |", "|---|---|---|---|---|"]
    for name, kind in samplers.KINDS.items():
        names = ", ".join(f"`{n}`" for n, m in METHODS.items() if m.kind == name)
        cells = [
            f"**{kind.__name__}**: {names}", paragraphs(kind)[0], paragraph(kind, "Target"),
            str(kind.gradients_per_step), paragraph(kind, "Source"),
        ]  # fmt: skip
        rows.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    return "\n".join(rows)


def settings_table() -> str:
    """Each sampler's settings, without those that the page explains for all; a row for all samplers with the same."""
    takers: dict[tuple[str, str, str], list[str]] = {}
    for kind in samplers.KINDS.values():
        for name, default, meaning in settings(kind):
            if name not in ("seed", "lanes") and meaning not in SHARED:
                shown = default if default == "required" else f"`{default}`"
                takers.setdefault((name, shown, meaning), []).append(kind.__name__)
    rows = [f"| {', '.join(kinds)} | `{name}` | {shown} | {text} |" for (name, shown, text), kinds in takers.items()]
    return "\n".join(["| sampler | setting | default | meaning |", "|---|---|---|---|", *rows])


def names_table() -> str:
    """What each name stands for."""
    rows = ["| name | sampler | schedule | further settings |", "|---|---|---|---|"]
    for name, method in METHODS.items():
        plain = {k: v for k, v in method.settings.items() if k != "sampler_settings"}
        given = plain | dict(method.settings.get("sampler_settings", {}))
        parts = [f"{k} = {v if isinstance(v, str) else format(v, 'g')}" for k, v in given.items()]
        if (stop := method.early_stop) is not None:
            parts.append(f"holds {stop.share:.0%} of the training data out, patience = {stop.patience} epochs")
        if method.tuned:
            parts.append(f"tunes itself for {method.tuned:.0%} of its steps")
        if method.last_epoch_measures:
            parts.append("burn_in = all epochs but the last")
        plan = ", ".join(parts) or "–"
        always = "" if method.takes("linear") else ", always"
        rows.append(f"| `{name}` | `{method.kind}` | {method.schedule}{always} | {plan} |")
    return "\n".join(rows)


def own_options(kind: type[Any]) -> list[tuple[str, str, str]]:
    """Name, default and help of the options that a dataclass adds to its bases'."""
    own = vars(kind).get("__annotations__", {})
    rows = []
    for option in options_of(kind).values():
        if option.name in own:
            if not option.help:
                raise ValueError(f"{kind.__name__}.{option.name} needs a help text")
            names = "`, `".join([option.flag, *option.form.aliases])
            rows.append((names, "off" if option.default is False else option.shown_default, option.help))
    return rows


def options_tables() -> str:
    """The options that several commands share, then each command's own."""
    kinds = {command: getattr(config, name) for command, (name, _) in COMMANDS.items()}
    shared: dict[str, list[type[Any]]] = {}
    for base in dict.fromkeys(b for kind in kinds.values() for b in reversed(kind.__mro__[1:-1]) if b is not Options):
        if base not in kinds.values():
            takers = [f"`{command}`" for command, kind in kinds.items() if issubclass(kind, base)]
            shared.setdefault(f"## Options of {', '.join(takers)}", []).append(base)
    parts = [f"{head}\n\n{table(bases)}" for head, bases in shared.items()]
    for command, kind in kinds.items():
        more = [f"`raychains {other}`" for other, base in kinds.items() if base in kind.__mro__[1:]]
        intro = f"{about(kind)} Also takes the options of {more[0]}." if more else about(kind)
        refused = ", ".join(f"`{options_of(kind)[name].flag}`" for name in getattr(kind, "refused", ()))
        intro += f" It refuses {refused}." if refused else ""
        lines = textwrap.fill(intro, 120, break_long_words=False, break_on_hyphens=False)
        parts.append(f"## `raychains {command}`\n\n{lines}\n\n{table([kind])}")
    return "\n\n".join(parts)


def table(kinds: Sequence[type[Any]]) -> str:
    """The options of some dataclasses."""
    options = [option for kind in kinds for option in own_options(kind)]
    rows = [f"| `{n}` | {f'`{d}`' if d else ''} | {linked(h)} |".replace("|  |", "| |") for n, d, h in options]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def linked(text: str) -> str:
    """A help text with links to the pages that it names, and to those that list the names that it lists."""
    for names, page in LISTED.items():
        text = text.replace(names, f"[these]({page})")
    return re.sub(r"docs/([\w/-]+\.md)", r"[docs/\1](../\1)", text)


def about(kind: type[Any]) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


PAGES = {
    "samplers.md": {"names": names_table, "methods": method_table, "settings": settings_table},
    "options.md": {"options": options_tables},
}


def filled(name: str, page: str) -> str:
    """The page of that name with every generated part written anew between its markers."""
    for part, make in PAGES[name].items():
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        if page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(f"{name} needs the markers {begin} and {end} once each")
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}\n\n{make()}\n\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    for name in PAGES:
        (REFERENCE / name).write_text(filled(name, (REFERENCE / name).read_text()))
