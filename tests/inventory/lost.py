"""What an inventory has and another lacks, less what CHANGELOG.md and ``dropped.json`` say is gone."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from tests.inventory.collect import ROOT, Entries, facets

FILE = Path(__file__).with_name("inventory.json")
ALIKE = 0.25
"""Share of their words, rare ones counting more, that a message and its new wording have in common at least."""


def excused() -> tuple[list[str], list[str]]:
    """What the changelog's top section names as changed or gone, and the texts that were dropped for a reason."""
    top = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]
    parts = [part for part in top.split("\n### ") if not part.startswith(("Added", "Fixed"))]
    dropped = json.loads(FILE.with_name("dropped.json").read_text(encoding="utf-8"))
    return re.findall(r"`([^`]+)`", "".join(parts)), [text for text, reason in dropped.items() if reason]


def lost(
    old: Mapping[str, Entries], new: Mapping[str, Entries], named: Collection[str] = (), dropped: Collection[str] = ()
) -> dict[str, Entries]:
    """Entries of ``old`` that ``new`` lacks or has otherwise, by section, each with what is wrong."""
    found: dict[str, Entries] = defaultdict(dict)
    for section, entries in old.items():
        now = new.get(section, {})
        reworded = rewordings(entries, now) if section == "messages" else {}
        for key, was in entries.items():
            here = now.get(key)
            if section == "messages":
                wrong = "" if key in {*now, *reworded, *dropped} else "gone, and no new message is like it"
            elif section in ("help", "docstrings"):
                wrong = "" if here is None else _unsaid(key, was, here, dropped)
            else:
                wrong = "" if here == was or _named(key, named) else "gone" if here is None else f"was {was}, is {here}"
                if any(key[: m.start()] in set(entries) - set(now) for m in re.finditer(r"[ .]", key)):
                    wrong = ""  # what it belongs to is gone, and that is told
            if wrong:
                found[section][key] = wrong
    return dict(found)


def _named(key: str, spans: Collection[str]) -> bool:
    """Whether the last word of an entry stands in backquotes."""
    word = re.compile(rf"(?<![\w-]){re.escape(re.split('[ .]', key)[-1])}(?![\w-])")
    return any(word.search(span) for span in spans)


def _unsaid(key: str, was: str, here: str, dropped: Collection[str]) -> str:
    """What a help text or a docstring no longer says; of docstrings with one name that became fewer, nothing is
    known."""
    (count, had), (still, has) = (re.findall(r"^(?:(\d+); )?(.*)", text)[0] for text in (was, here))
    if int(still or 0) < int(count or 0):
        return ""
    gone = Counter(had.split("; ")) - Counter(has.split("; ")) if count else facets(had) - facets(has)
    said = sorted(fact for fact in gone if f"{key}: {fact}" not in dropped)
    return "has no text" if had and not has else f"no longer says {', '.join(said)}" if said else ""


def rewordings(old: Collection[str], new: Collection[str]) -> dict[str, str]:
    """Messages that are gone with the new ones that say the same: the most alike first, none twice."""
    words = {text: set(re.findall(r"[^\W_]+", text.lower())) for text in set(old) ^ set(new)}
    often = Counter(word for each in words.values() for word in each)
    weight = {word: math.log(1 + len(words) / count) for word, count in often.items()}
    size = {text: sum(weight[word] for word in each) for text, each in words.items()}
    pairs = []
    for a in set(old) - set(new):
        for b in set(new) - set(old):
            pairs.append((2 * sum(weight[word] for word in words[a] & words[b]) / (size[a] + size[b] or 1), a, b))
    found: dict[str, str] = {}
    for alike, a, b in sorted(pairs, reverse=True):
        if alike >= ALIKE and a not in found and b not in found.values():
            found[a] = b
    return found
