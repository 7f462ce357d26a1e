"""Small Arrow batches become one package, and large ones are not copied."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtimes.spark.worker.packing import LARGE, ROWS
from headrace.runtimes.spark.worker.partitioner import _gathered

sizes = st.lists(st.sampled_from([0, 1, 100, LARGE - 1, LARGE, 2 * LARGE, ROWS]), max_size=12)


@given(sizes)
def test_rows_keep_their_order_and_large_batches_their_memory(counts: list[int]) -> None:
    ends = np.cumsum([0, *counts])
    batches = [pa.RecordBatch.from_pydict({"n": np.arange(begin, end)}) for begin, end in pairwise(ends)]
    found = list(_gathered(iter(batches)))
    together = np.concatenate([batch.column(0).to_numpy() for batch in found] or [np.array([])])
    assert (together == np.arange(ends[-1])).all()
    assert all(0 < batch.num_rows < ROWS + LARGE for batch in found)
    memory = {batch.column(0).buffers()[1].address for batch in found}
    assert all(b.column(0).buffers()[1].address in memory for b in batches if b.num_rows >= LARGE)
    assert len(found) <= 1 + sum(counts) // ROWS + 2 * sum(count >= LARGE for count in counts)
