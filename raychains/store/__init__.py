"""The run store: immutable, atomic, checksummed files on any pyarrow filesystem.

Names are loaded on first use: `codec` needs no pyarrow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raychains.store.chain_store import ChainStore, SampleRecord, finished_chains
    from raychains.store.codec import Corrupt
    from raychains.store.filesystem import Storage
    from raychains.store.runs import FitStore, RunStore, SweepStore, check_run_name, load_sweep, split_run_path

_EXPORTS = {
    "chain_store": ("ChainStore", "SampleRecord", "finished_chains"),
    "codec": ("Corrupt",),
    "filesystem": ("Storage",),
    "runs": ("FitStore", "RunStore", "SweepStore", "check_run_name", "load_sweep", "split_run_path"),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = ["ChainStore", "Corrupt", "FitStore", "RunStore", "SampleRecord", "Storage", "SweepStore"]
__all__ += ["check_run_name", "finished_chains", "load_sweep", "split_run_path"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
