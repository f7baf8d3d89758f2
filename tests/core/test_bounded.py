"""What is read from stores with bounds; `tests/fuzz` tries what exceeds them."""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raychains.core import bounded
from tests.processes import json_of

READ = """
import io, json, os
import pyarrow as pa, pyarrow.parquet as pq
from raychains.core import bounded
out = io.BytesIO()
pq.write_table(pa.table({name: ["text"] * 100 for name in "abcdefgh"}), out)
threads = len(os.listdir("/proc/self/task"))
assert bounded.table(out.getvalue(), "x").num_columns == 8
print(json.dumps(len(os.listdir("/proc/self/task")) - threads))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_is_left_that_holds_python_s_bytes_when_the_process_ends() -> None:
    """Arrow's did, and one in twenty calls of `raychains status` on a busy machine was aborted after it had printed."""
    assert json_of("-c", READ) == 0


def test_two_columns_of_one_name_are_a_damaged_table() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), sink)
    with pytest.raises(ValueError, match="two columns have one name"):
        bounded.table(sink.getvalue().to_pybytes(), "x")
