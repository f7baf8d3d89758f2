"""The model card of a served ensemble: what it is and how to ask it, as JSON and as a page."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from raychains.core import tree
from raychains.inference.requests import DTYPES, Accepted, InputForm

SHOWN = 100
"""Numbers of an input that are written out in the example; a larger input is sent as a file."""
DIGITS = 12
"""Digits of a digest on the page."""
_HOST = re.compile(r"[A-Za-z0-9.:\[\]-]{1,255}")
_PATH = re.compile(r"[A-Za-z0-9/._~-]{0,255}")
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark }}
td {{ padding: .2rem 1rem .2rem 0; vertical-align: top }} td + td {{ font-family: ui-monospace, monospace }}
pre {{ padding: .8rem; overflow: auto; border: 1px solid #8888; border-radius: 4px; white-space: pre-wrap }}
</style></head><body>
<h1>{title}</h1>
<table>{rows}</table>
<h2>Ask</h2>
<pre>{call}</pre>
<p>{answer}</p>
</body></html>
"""
ANSWERS = {
    "classification": "The answer holds probabilities, entropy and mutual_information (nats) of each input; with "
    '"intervals": 0.9 also the 90 % credible interval of each probability over the samples.',
    "regression": 'The answer holds mean and sd of each input, noise included; with "quantiles": [0.05, 0.5, 0.95] '
    "also "
    "these quantiles of the mixture over the samples.",
    "distribution": "The answer holds mean and sd of each input under the mixture over the samples; of labels mean is "
    "the probability of each, of survival that of outliving each edge.",
}


def card(about: Mapping[str, Any], accepted: Accepted, url: str) -> dict[str, Any]:
    """Return the card as JSON.

    Args:
        about: of `raychains.inference.ensemble_source.Loaded`.
        accepted: the requests that are answered.
        url: where they are sent.
    """
    unknown = {"shape": None, "dtypes": list(DTYPES)}
    form = tree.mapped(lambda leaf: _taken(leaf, accepted.images), accepted.form) if accepted.form else unknown
    return {**about, "input": form, "most_inputs": accepted.rows, "example": example(accepted, url)}


def _taken(form: InputForm, images: bool) -> dict[str, Any]:
    shape = ["n", *("any" if size is None else size for size in form.shape)]
    return {"shape": shape, "dtypes": list(form.dtypes(images))}


def example(accepted: Accepted, url: str) -> str:
    """Return a command line that asks for the predictive of one input of zeros, or of ones where it is several
    arrays."""
    form = accepted.form
    if form is None:
        return f"""curl {url} -H 'Content-Type: application/json' -d '{{"inputs": […]}}'"""
    dtypes = [leaf.dtypes(accepted.images)[0] for leaf in tree.leaves(form)]
    sizes = [math.prod(size or 1 for size in leaf.shape) for leaf in tree.leaves(form)]
    several = not isinstance(form, InputForm)
    if several or sum(sizes) <= SHOWN:
        of_bytes = {"dtype": dtypes[0]} if dtypes[0] != "float32" and not several else {}
        value = 1 if several else 0  # what is all 0 may be a mask that leaves nothing
        body = {"inputs": tree.mapped(lambda leaf: _filled(leaf, accepted.images, value), form), **of_bytes}
        return f"curl {url} -H 'Content-Type: application/json' -d '{json.dumps(body, separators=(',', ':'))}'"
    dtype = dtypes[0]
    shape = (1, *form.shape)
    return (
        f"""python -c "import numpy; numpy.save('inputs.npy', numpy.zeros({shape}, '{dtype}'))"\n"""
        f"curl {url} -H 'Content-Type: application/octet-stream' --data-binary @inputs.npy"
    )


def _filled(form: InputForm, images: bool, value: int) -> list[Any]:
    """Return one input of one number, in which a size that may be any is 1."""
    found: Any = value if form.dtypes(images)[0] != "float32" else float(value)
    for size in reversed((1, *form.shape)):
        found = [found] * (size or 1)
    return list(found)


def page(found: Mapping[str, Any]) -> str:
    """Return a card as HTML that needs nothing else."""
    digests = [str(one)[:DIGITS] for one in found.get("digests", ())]
    told = f"{digests[0]} … {digests[-1]}" if len(digests) > 1 else "".join(digests)
    taken = "; ".join(
        f"{place} {'[' + ', '.join(map(str, shape)) + '], ' if shape else ''}{' or '.join(dtypes)}".strip()
        for place, shape, dtypes in _forms(found["input"])
    )
    rows = {
        "task": found.get("task"),
        "run": found.get("run"),
        "arm": found.get("arm"),
        "predicts": found.get("kind"),
        "samples": found.get("samples"),
        "sha256 of samples": told,
        "sha256 of the file": str(found.get("sha256") or "")[:DIGITS],
        "inputs": taken,
        "inputs in one request": f"at most {found['most_inputs']}",
    }
    cells = [
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value
    ]
    return _PAGE.format(
        title=html.escape(f"{found.get('task') or 'Posterior'}: {found.get('samples')} samples"),
        rows="\n".join(cells),
        call=html.escape(str(found["example"])),
        answer=html.escape(ANSWERS.get(str(found.get("kind")), "")),
    )


def _forms(given: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, shape and dtypes of each array of an input."""
    if isinstance(given, Mapping) and "dtypes" in given:
        yield place, given["shape"], given["dtypes"]
        return
    for name, part in given.items() if isinstance(given, Mapping) else enumerate(given):
        yield from _forms(part, f"{place}.{name}" if place else str(name))


def address(host: str, path: str) -> str:
    """Return the address of requests; ``host`` and ``path`` are a client's, and replaced where a shell would read more
    in them."""
    host = host if _HOST.fullmatch(host) else "127.0.0.1:8000"
    return f"http://{host}{path if _PATH.fullmatch(path) else ''}".rstrip("/") + "/"
