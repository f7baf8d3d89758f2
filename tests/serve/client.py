"""Requests over HTTP, and small ensembles to ask."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from torch import Tensor

from raychains import models
from raychains.inference import PosteriorPredictive, file
from tests.processes import SECONDS

JSON = "application/json"
NPY = "application/octet-stream"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line of an answer that refuses."""
        (name,), (text,) = zip(*self.json.items(), strict=True)
        assert name == "error" and "\n" not in text and "Traceback" not in text
        return text


def ask(
    url: str,
    body: Any = None,
    kind: str | None = JSON,
    method: str | None = None,
    timeout: float = SECONDS,
    **headers: str,
) -> Reply:
    """Send a request; a body that is no bytes is sent as JSON."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=timeout)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if data is not None and kind is not None:
        sent["Content-Type"] = kind
    path = (where.path or "/") + (f"?{where.query}" if where.query else "")
    try:
        connection.request(method or ("GET" if data is None else "POST"), path, data, sent)
        reply = connection.getresponse()
        return Reply(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read())
    finally:
        connection.close()


def npy(array: np.ndarray[Any, Any], **how: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **how)
    return out.getvalue()


def regression(samples: int = 7) -> tuple[PosteriorPredictive, list[dict[str, Tensor]], dict[str, Any]]:
    """An ensemble of small regression networks with a noise for each sample, its state dicts, its network's
    description."""
    network = {"name": "mlp", "settings": {"inputs": 3, "hidden": [5], "outputs": 1}}
    network["revision"] = models.revision("mlp")
    states = []
    for s in range(samples):
        torch.manual_seed(s)
        state = models.build("mlp", **network["settings"]).state_dict()  # type: ignore[arg-type]
        states.append({**state, "log_noise": torch.tensor(-1.0 - 0.2 * s)})
    model = models.build("mlp", **network["settings"])  # type: ignore[arg-type]
    return PosteriorPredictive(model, states, kind="regression"), states, network


def regression_file(path: Path) -> PosteriorPredictive:
    """Write such an ensemble as `raychains export` does; return it."""
    posterior, states, network = regression()
    about = {
        "run": "tides",
        "arm": "sghmc",
        "task": {"kind": "tides"},
        "kind": "regression",
        "noise": None,
        "network": network,
        "preparation": None,
        "shared": [],
        "samples": [],
        "input": {"shape": [3], "dtype": "float32"},
    }
    file.write(path, states, len(states), shared={}, dtype=None, about=about)
    return posterior
