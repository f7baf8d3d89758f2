"""Where raychains cannot be imported: FOLDERS' PARENT, STORE, SEED and names in, values and the files they are made of out."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.modules["raychains"] = None  # type: ignore[assignment]  # any import of it fails

from tests.published.recompute import reading  # noqa: E402

parent, store, seed, *names = sys.argv[1:]
found: dict[str, Any] = {}
for name in names:
    reading.READ.clear()
    module = importlib.import_module(f"tests.published.recompute.{name.replace('-', '_')}")
    stored, again = module.check(Path(parent) / name, Path(store), int(seed))
    found[name] = {"stored": stored, "again": again, "files": [str(p) for p in reading.READ]}
print(json.dumps(found))
