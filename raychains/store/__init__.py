"""The run store: immutable, atomic, checksummed files on any pyarrow filesystem."""

from raychains.store.chains import ChainStore, SampleRecord, finished_chains
from raychains.store.codec import Corrupt
from raychains.store.filesystem import Storage
from raychains.store.runs import RunStore, SweepStore, check_name, load_sweep, split_run_path

__all__ = ["ChainStore", "Corrupt", "RunStore", "SampleRecord", "Storage", "SweepStore"]
__all__ += ["check_name", "finished_chains", "load_sweep", "split_run_path"]
