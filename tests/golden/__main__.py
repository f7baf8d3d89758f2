"""`python -m tests.golden --write` records golden.json anew."""

from __future__ import annotations

import json
import os
import sys

import torch

from tests.golden import values


def main() -> None:
    """Compute every section, and of published data what RAYCHAINS_DATA has."""
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.golden --write")
    torch.set_num_threads(1)
    found = {name: section() for name, section in values.SECTIONS.items()}
    if os.environ.get("RAYCHAINS_DATA"):
        found["published"] = {name: values.fingerprint(name) for name in values.PUBLISHED}
    else:
        print("RAYCHAINS_DATA is not set: fingerprints of published data stay as they are recorded")
        found["published"] = values.recorded()["published"]
    lines = []
    for name, entries in found.items():
        rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
        lines.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
    values.FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
