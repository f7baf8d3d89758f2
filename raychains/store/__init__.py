"""The run store: immutable, atomic, checksummed files on any pyarrow filesystem."""

from raychains.store.chains import ChainStore, SampleRecord
from raychains.store.codec import Corrupt
from raychains.store.filesystem import Root
from raychains.store.runs import RunStore, check_name, split_run_path
from raychains.store.sweeps import SweepStore, load_sweep

__all__ = [
    "ChainStore", "Corrupt", "Root", "RunStore", "SampleRecord", "SweepStore", "check_name", "load_sweep", "split_run_path",
]  # fmt: skip
