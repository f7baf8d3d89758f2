"""Plain text as LaTeX's: what LaTeX would read as a command is escaped, and what plain LaTeX lacks is spelled out."""

from __future__ import annotations

import re
import unicodedata

TEX = {c: f"\\{c}" for c in "{}$&#%_"} | {c: f"{{{c}}}" for c in "[*"} | {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}",
    ">": "\\textgreater{}", "|": "\\textbar{}", '"': "''", "±": "$\\pm$", "−": "$-$", "–": "--", "—": "---",
    "×": "$\\times$", "·": "$\\cdot$", "∞": "$\\infty$", "≤": "$\\le$", "≥": "$\\ge$", "≈": "$\\approx$", "`": "\\textasciigrave{}",
    "→": "$\\to$", "↓": "$\\downarrow$", "↑": "$\\uparrow$", "√": "$\\surd$", "‖": "$\\Vert$", "∝": "$\\propto$",
    "†": "\\dag{}", "‡": "\\ddag{}", "§": "\\S{}", "¶": "\\P{}", "…": "\\ldots{}", "°": "$^\\circ$",
    "\u00a0": "~", "“": "``", "”": "''", "‘": "`", "’": "'", "ₐ": "$_a$", "⁻": "$^-$", "⅔": "2/3", "½": "1/2", "¼": "1/4",
}  # fmt: skip
"""What stands for a character in LaTeX's text; others that are beyond Latin are left as they are.

``[`` and ``*`` stand in braces: after the end of a line LaTeX would take them for an option.
"""


def tex(text: str) -> str:
    """Text that LaTeX shows as it is, on one line; Greek letters, and raised or lowered digits, in mathematics."""
    return "".join(_tex_character(c) for c in re.sub(r"[ \t\r\n]+", " ", text))


def _tex_character(c: str) -> str:
    if c in TEX:
        return TEX[c]
    name, plain = unicodedata.name(c, ""), unicodedata.normalize("NFKD", c)
    if name.startswith("GREEK SMALL LETTER ") and c not in "οςάέήίόύώ":
        return f"$\\{name.rpartition(' ')[2].lower().replace('lamda', 'lambda')}$"
    if name.startswith(("SUPERSCRIPT ", "SUBSCRIPT ")) and plain.isdigit():
        return f"${'^' if name.startswith('SUPER') else '_'}{plain}$"
    return c
