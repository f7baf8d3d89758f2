"""The page over all experiments of one scale: what became of each at a glance, then its claims and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raychains.published import catalogue
from raychains.published.experiment import PAPERS, SCALES, Experiment
from raychains.published.folder import Folder
from raychains.report import page, results
from raychains.store import Root

METHODS = {"csgmcmc": "cSG-MCMC", "atmc": "ATMC", "emcmc": "Entropy-MCMC"}
"""What each paper is about; both have a Table 1."""
WORDS = ("holds", "does not hold", "cannot be told")
FIGURES = "figures"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One experiment's folder."""

    experiment: Experiment
    about: Mapping[str, Any]
    claims: Sequence[tuple[str, str]]
    """(what became of it, its line)"""
    figures: Sequence[str]
    """Paths below the index."""

    @property
    def state(self) -> str:
        """Its parts' state where it is the same of all; ``partly`` where some were done."""
        states = {part["status"] for part in self.about["parts"].values()}
        grave = [s for s in ("failed", "unfinished") if s in states]
        return grave[0] if grave else states.pop() if len(states) == 1 else "partly"

    def counts(self) -> list[int]:
        """Claims by `WORDS`."""
        return [sum(verdict == word for verdict, _ in self.claims) for word in WORDS]


def entries(root: Root, prefix: str, scale: str) -> list[Entry]:
    """Those whose folders lie there, in the papers' order."""
    found = []
    for experiment in catalogue.every().values():
        folder = Folder(root, prefix, experiment.name)
        about = folder.about()
        if about is None or about["scale"] != scale:
            continue
        claims = results.read_rows(folder, "claims", texts=("verdict", "line"))
        drawn = root.names(_below(prefix, experiment.name, FIGURES))
        found.append(
            Entry(
                experiment=experiment,
                about=about,
                claims=[] if claims is None else list(zip(claims["verdict"], claims["line"], strict=True)),
                figures=[f"{experiment.name}/{FIGURES}/{n}" for n in sorted(drawn) if n.endswith(".svg")],
            )
        )
    return found


def write(root: Root, prefix: str, scale: str) -> str:
    """Draw index.html, and the same as README.md; where the page lies.

    Args:
        root: the store, or the folder that results are collected in.
        prefix: where the experiments' folders lie in it.
        scale: whose; others are not shown.
    """
    all_of_them = entries(root, prefix, scale)
    html = page.template("reproductions.html.j2").render(
        style=page.style(),
        scale=scale,
        about_scale=SCALES[scale],
        papers=PAPERS,
        methods=METHODS,
        entries=all_of_them,
        words=WORDS,
    )
    name = _below(prefix, "index.html")
    root.publish(name, html.encode(errors="replace"))
    root.publish(_below(prefix, "README.md"), markdown(scale, all_of_them).encode())
    return root.location(name)


def _below(*names: str) -> str:
    return "/".join(name for name in names if name)


def markdown(scale: str, shown: Sequence[Entry]) -> str:
    """The page as Markdown."""
    about = SCALES[scale]
    lines = [f"# Published tables and figures at scale {scale}", "", f"{about[0].upper()}{about[1:]}.", ""]
    lines += [f"| paper | what | name | run | {' | '.join(WORDS)} |", f"|---|---|---|---|{'---:|' * len(WORDS)}"]
    for one in shown:
        what = f"[{one.experiment.where}: {one.experiment.title}]({one.experiment.name}/table.md)"
        counts = " | ".join(str(n or "") for n in one.counts())
        lines.append(f"| {METHODS[one.experiment.paper]} | {what} | `{one.experiment.name}` | {one.state} | {counts} |")
    for one in shown:
        name = one.experiment.name
        lines += ["", f"## [{one.experiment.where}: {one.experiment.title}]({name}/table.md)", ""]
        lines += [f"{PAPERS[one.experiment.paper]}. `raychains reproduce {name} --scale {scale}`", ""]
        parts: Mapping[str, Mapping[str, str]] = one.about["parts"]
        lines += [f"- {n}: {p['status']}{': ' + p['reason'] if p['reason'] else ''}" for n, p in parts.items()]
        lines += [f"- {line}" for _, line in one.claims]
        lines += [f"\n![{one.experiment.title}]({path})" for path in one.figures]
    return "\n".join([*lines, ""])
