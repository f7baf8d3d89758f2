"""The run store: immutable, atomic, checksummed files on any pyarrow filesystem."""

from raychains.store.chains import ChainStore, SampleRecord
from raychains.store.codec import Corrupt
from raychains.store.filesystem import Root
from raychains.store.runs import RunStore, check_name, split_run_path

__all__ = ["ChainStore", "Corrupt", "Root", "RunStore", "SampleRecord", "check_name", "split_run_path"]
