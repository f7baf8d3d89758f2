"""Where raychains cannot be imported: PARENT OF FOLDERS, STORE, SEED and names in; values and their files out, by name.

``altered`` is the value once one of those files, drawn by the seed, holds other numbers.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

sys.modules["raychains"] = None  # type: ignore[assignment]  # any import of it fails

from tests.papers.recompute import cells, reading  # noqa: E402


def alter(path: Path) -> None:
    """Other numbers of the same shape: every prediction becomes that of the next class, every draw moves."""
    if path.suffix == ".safetensors":
        tensors = {k: np.roll(v, 1, axis=-1) + 0.37 if v.dtype.kind == "f" else v for k, v in load_file(path).items()}
        save_file(tensors, path)
        return
    table = pq.read_table(path)
    for i, field in enumerate(table.schema):
        shift = 0.37 * (np.arange(table.num_rows) % 3 + 1)
        values = table[field.name].to_numpy(zero_copy_only=False)
        if pa.types.is_floating(field.type):
            table = table.set_column(i, field, pa.array(values * (1 + shift) + shift))
        elif pa.types.is_list(field.type):
            table = table.set_column(i, field, pa.array(list(np.stack(values) + shift[:, None]), field.type))
    pq.write_table(table, path)


parent, store, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
found: dict[str, Any] = {}
for name in sys.argv[4:]:
    reading.READ.clear()
    check = cells.CHECKS.get(name, cells.ensemble)
    stored, again = check(parent / name, store, seed)
    files = sorted({*reading.READ})
    path = files[int(np.random.default_rng(seed).integers(len(files)))]
    before = path.read_bytes()
    alter(path)
    try:
        _, altered = check(parent / name, store, seed)
    finally:
        path.write_bytes(before)
    found[name] = {"stored": stored, "again": again, "altered": altered}
print(json.dumps(found))
