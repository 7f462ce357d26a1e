"""Row stores: append, take, forget, and snapshots at the cost of the change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.columns import Buffer, column_for
from headrace.state.part import decode, encode
from headrace.state.rows import RowStore, bare_rows

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("s", pa.string())])
STEPS = st.lists(st.tuples(st.sampled_from(["append", "drop", "compact", "save", "full"]), st.integers(0, 6)))


def rows(*values: int) -> pa.RecordBatch:
    names = [None if v % 5 == 0 else f"s{v}" for v in values]
    columns = [pa.array(values, pa.int64()), pa.array(names, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def contents(store: RowStore) -> tuple[int, int, list[dict[str, object]]]:
    ids = np.arange(store.base, store.next)
    return store.base, store.next, store.rows(ids).to_pylist()


@given(STEPS)
def test_a_full_chunk_and_every_later_one_give_the_same_store(steps: list[tuple[str, int]]) -> None:
    store, copy = RowStore(SCHEMA), RowStore(SCHEMA)
    copy.apply(decode(encode(store.changes(full=True))))
    for step, number in steps:
        if step in ("save", "full"):
            copy.apply(decode(encode(store.changes(full=step == "full"))))
            assert contents(copy) == contents(store)
        else:
            step_store(store, step, number)


def step_store(store: RowStore, step: str, number: int) -> None:
    if step == "append":
        store.append(rows(*range(store.next, store.next + number)))
    elif step == "drop":
        store.drop_before(store.base + number)
    else:
        store.compact(np.arange(len(store)) % 2 == number % 2)


def test_rows_that_came_and_went_between_two_snapshots_leave_no_gap() -> None:
    store, copy = RowStore(SCHEMA), RowStore(SCHEMA)
    store.append(rows(1, 2))
    copy.apply(store.changes(full=True))
    store.append(rows(3, 4, 5, 6))
    store.drop_before(4)
    copy.apply(store.changes(full=False))
    assert (copy.base, copy.next) == (4, 6)
    assert copy.rows(np.array([4, 5])).to_pylist() == rows(5, 6).to_pylist()


def test_an_incremental_snapshot_writes_only_the_new_rows() -> None:
    store = RowStore(SCHEMA)
    store.append(rows(1, 2, 3))
    store.changes(full=True)
    store.append(rows(4))
    assert len(store.changes(full=False)["rows"]) == 1


def test_a_store_without_columns_counts_its_rows() -> None:
    store, copy = RowStore(pa.schema([])), RowStore(pa.schema([]))
    store.append(bare_rows(3))
    copy.apply(decode(encode(store.changes(full=True))))
    assert len(copy) == 3
    assert copy.rows(np.array([0, 1])).num_rows == 2


COLUMNS = [
    pa.array([1, None, 3], pa.int64()),
    pa.array([1.5, float("inf"), None], pa.float32()),
    pa.array([True, None, False]),
    pa.array(["", None, "héé"]),
    pa.array([b"", None, b"\x00"], pa.large_binary()),
    pa.array([1, 2, None], pa.decimal128(20, 3)),
    pa.array([1, None, 2], pa.timestamp("us", "UTC")),
    pa.array([[1, 2], [3, 4], None], pa.list_(pa.int64())),
    pa.array([{"x": 1}, None, {"x": 2}], pa.struct([pa.field("x", pa.int64())])),
    pa.nulls(3),
]


@pytest.mark.parametrize("array", COLUMNS, ids=lambda a: str(a.type))
def test_a_column_gives_back_what_was_appended(array: pa.Array) -> None:
    column = column_for(array.type)
    column.append(array.slice(1, 0))
    column.append(array.slice(1))
    column.append(array)
    assert column.take(np.array([4, 0, 0, 1])).to_pylist() == array.take(pa.array([2, 1, 1, 2])).to_pylist()
    column.drop(3)
    assert column.take(np.arange(2)).to_pylist() == array.slice(1).to_pylist()


def test_a_buffer_gives_memory_back_when_most_of_it_is_dead() -> None:
    buffer = Buffer(np.int64)
    buffer.append(np.arange(100_000))
    buffer.drop(99_990)
    assert buffer.bytes() < 1000
    assert buffer.view.tolist() == list(range(99_990, 100_000))
