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

DAMAGED = """
import io, json, random
import pyarrow as pa, pyarrow.parquet as pq
from raychains.core import bounded
out = io.BytesIO()
pq.write_table(pa.table({"x": ["a", "b"] * 5, "y": [1.0] * 10, "z": [[1, 2]] * 10}), out, write_page_checksum=True)
whole, chance, ends = out.getvalue(), random.Random(0), set()
footer = int.from_bytes(whole[-8:-4], "little")
for _ in range(2000):
    data = bytearray(whole)
    data[chance.randrange(len(whole) - 8 - footer, len(whole) - 8)] = chance.randrange(256)
    try:
        bounded.table(bytes(data), "x")
        ends.add("read")
    except (pa.ArrowException, OSError, ValueError):
        ends.add("damaged")
print(json.dumps(sorted(ends)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_no_thread_is_left_that_holds_python_s_bytes_when_the_process_ends() -> None:
    """Arrow's did, and one in twenty calls of `raychains status` on a busy machine was aborted after it had printed."""
    assert json_of("-c", READ) == 0


def test_a_damaged_footer_does_not_abort_the_process() -> None:
    """To ask pyarrow for the columns of some of these does."""
    assert json_of("-c", DAMAGED) == ["damaged", "read"]


def test_two_columns_of_one_name_are_a_damaged_table() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), sink)
    with pytest.raises(ValueError, match="two columns have one name"):
        bounded.table(sink.getvalue().to_pybytes(), "x")
