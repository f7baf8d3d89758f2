"""KubeRay's custom resource definitions, and whether a manifest is what they describe.

Each ``kuberay-VERSION.json.xz`` holds the OpenAPI schemas of the three kinds from that release of ray-project/kuberay
(Apache-2.0), as ``helm-chart/kuberay-operator/crds`` has them; descriptions and the status are left out. A newer
release: add its file.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema

VERSIONS = sorted(file.name.removesuffix(".json.xz") for file in Path(__file__).parent.glob("kuberay-*.json.xz"))


def problems(manifest: dict[str, Any], version: str) -> list[str]:
    """Everything in a manifest that the operator's release refuses, or would drop in silence; nothing for a good
    one."""
    schema = schemas(version).get(manifest.get("kind", ""))
    if schema is None:
        return [f"kind {manifest.get('kind')} is none of KubeRay's"]
    errors = jsonschema.Draft7Validator(schema).iter_errors(manifest)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in errors]


@cache
def schemas(version: str) -> dict[str, Any]:
    """By kind, with unknown fields refused."""
    found = json.loads(lzma.decompress(Path(__file__).with_name(f"{version}.json.xz").read_bytes()))
    return {kind: _closed(schema) for kind, schema in found.items() if kind != "source"}


def quantity() -> str:
    """The pattern of Kubernetes' quantities."""
    resources = schemas(VERSIONS[-1])["RayCluster"]["properties"]["spec"]["properties"]["autoscalerOptions"][
        "properties"
    ]
    return str(resources["resources"]["properties"]["limits"]["additionalProperties"]["pattern"])


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """Let an object have the fields that it lists only; where none are listed, as in metadata, all."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {name: _closed(field) for name, field in schema["properties"].items()}
        closed["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        closed["additionalProperties"] = _closed(schema["additionalProperties"])
    if "items" in schema:
        closed["items"] = _closed(schema["items"])
    return closed
