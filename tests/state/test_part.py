"""The codec of snapshot chunks, and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headrace.state.part import Cell, decode, encode
from headrace.state.rows import bare_rows

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False)
)
ARRAYS = hnp.arrays(
    st.sampled_from([np.int64, np.uint8, np.bool_, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=2, min_side=0),
)


@given(st.dictionaries(st.text(max_size=5), SCALARS | ARRAYS))
def test_a_chunk_survives_the_codec(chunk: dict[str, Any]) -> None:
    back = decode(encode(chunk))
    assert back.keys() == chunk.keys()
    for name, value in chunk.items():
        found: Any = back[name]
        if isinstance(value, np.ndarray):
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            assert found.tobytes() == value.tobytes()
            found.flags.writeable = True
        else:
            assert found == value


def test_batches_of_any_type_survive_the_codec() -> None:
    batch = pa.record_batch({"a": [1, None], "s": ["x", None], "l": [[1.5], None], "b": [True, None]})
    for each in (batch, batch.slice(1), batch.slice(0, 0), bare_rows(3)):
        back: Any = decode(encode({"b": each}))["b"]
        assert back.equals(each)
        assert back.num_rows == each.num_rows


def test_a_cell_is_written_whole() -> None:
    cell, copy = Cell(at=1, name="x"), Cell(at=0, name="")
    cell["at"] = 5
    copy.apply(decode(encode(cell.changes(full=False))))
    assert (copy["at"], copy["name"]) == (5, "x")
