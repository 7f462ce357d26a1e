"""Group codes: equal keys have equal codes, whatever the hash does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.state import keys as keys_module
from headrace.state.key_index import GroupIndex
from headrace.state.part import decode, encode

PAIR = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
PAIRS = st.tuples(st.none() | st.integers(0, 3), st.sampled_from([None, "", "a", "ab"]))


def arrays(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> list[pa.Array]:
    return [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]


def codes(index: GroupIndex, rows: list[tuple[Any, ...]]) -> list[int]:
    found: list[int] = index.codes(arrays(index.keys.schema, rows), len(rows)).tolist()
    return found


def assert_codes_are_keys(index: GroupIndex, batches: list[list[tuple[Any, ...]]]) -> None:
    seen: dict[tuple[Any, ...], int] = {}
    for batch in batches:
        for row, code in zip(batch, codes(index, batch), strict=True):
            assert seen.setdefault(row, code) == code
    assert len(set(seen.values())) == len(seen) == len(index)


@pytest.fixture(params=["hashed", "colliding", "all alike"])
def hashing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    moduli = {"colliding": 2, "all alike": 1}
    if request.param in moduli:
        real = keys_module.hash_rows
        monkeypatch.setattr(keys_module, "hash_rows", lambda c, n: real(c, n) % moduli[request.param])
    return str(request.param)


@pytest.mark.usefixtures("hashing")
@given(st.lists(st.lists(PAIRS, max_size=12), max_size=5))
def test_codes_are_exact_even_where_hashes_collide(batches: list[list[tuple[Any, ...]]]) -> None:
    assert_codes_are_keys(GroupIndex(PAIR), batches)


@pytest.mark.usefixtures("hashing")
@given(st.lists(PAIRS, max_size=12), st.lists(PAIRS, max_size=12), st.integers(0, 2**12))
def test_codes_survive_compaction_and_snapshots(
    first: list[tuple[Any, ...]], second: list[tuple[Any, ...]], picks: int
) -> None:
    index, copy = GroupIndex(PAIR), GroupIndex(PAIR)
    before = codes(index, first)
    copy.apply(decode(encode(index.changes(full=True))))
    keep = np.array([bool(picks >> i & 1) for i in range(len(index))], np.bool_)
    remap = index.compact(keep)
    kept = [(row, int(remap[code])) for row, code in zip(first, before, strict=True) if keep[code]]
    assert codes(index, [row for row, _ in kept]) == [code for _, code in kept]
    after = codes(index, second)
    copy.apply(decode(encode(index.changes(full=False))))
    assert codes(copy, second) == after
    assert len(copy) == len(index)


@given(st.lists(st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf]), max_size=20))
def test_minus_zero_is_zero_and_all_nan_are_one_key(values: list[float | None]) -> None:
    index = GroupIndex(pa.schema([pa.field("v", pa.float64())]))
    expected = {None if v is None else "nan" if math.isnan(v) else v + 0.0 for v in values}
    codes(index, [(v,) for v in values])
    assert len(index) == len(expected)


@pytest.mark.parametrize("column", [pa.array([1, 2, 1], pa.int64()), pa.array(["x", "y", "x"])])
def test_read_only_arrow_buffers_are_keys_like_any_other(column: pa.Array) -> None:
    batch = pa.record_batch({"k": column})
    decoded: Any = decode(encode({"b": batch}))["b"]
    read_only = decoded.column(0)
    for schema in (batch.schema, pa.schema([*batch.schema, pa.field("l", column.type)])):
        columns = [read_only] * len(schema)
        assert GroupIndex(schema).codes(columns, 3).tolist() == [0, 1, 0]


def test_nan_inside_a_list_equals_itself() -> None:
    index = GroupIndex(pa.schema([pa.field("v", pa.list_(pa.float64()))]))
    rows = [([math.nan],), ([1.0, 2.0],), (None,)]
    assert codes(index, rows) == codes(index, rows) == [0, 1, 2]


def test_without_key_columns_there_is_one_group() -> None:
    index, copy = GroupIndex(pa.schema([])), GroupIndex(pa.schema([]))
    assert index.codes([], 3).tolist() == [0, 0, 0]
    copy.apply(decode(encode(index.changes(full=True))))
    assert len(copy) == len(index) == 1


def test_the_table_grows_with_the_keys() -> None:
    index = GroupIndex(pa.schema([pa.field("k", pa.int64())]))
    values = np.random.default_rng(7).permutation(50_000)
    found = index.codes([pa.array(values)], len(values))
    assert sorted(found.tolist()) == list(range(50_000))
    assert index.codes([pa.array(values[::-1].copy())], len(values)).tolist() == found[::-1].tolist()
