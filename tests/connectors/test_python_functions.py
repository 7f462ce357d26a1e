"""Python functions as sources and sinks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.contract import Block
from headrace.connectors.python_functions import PythonSource, PythonTarget
from headrace.errors import ConnectorError

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
Yielded = tuple[list[dict[str, Any]], bool]


def rows_of(blocks: list[Yielded]) -> list[dict[str, Any]]:
    return [row for rows, _ in blocks for row in rows]


def function_over(blocks: list[Yielded], cuts: Callable[[int], int]) -> Callable[[Any], Iterator[Any]]:
    """Yields the rows of the blocks, with a position where the block has one; `cuts` divides them anew."""

    def rows(position: Any) -> Iterator[Any]:
        for i, (found, has_position) in enumerate(blocks):
            if position is not None and i < position:
                continue
            size = cuts(i)
            pieces = [found[n : n + size] for n in range(0, len(found), size)] or [[]]
            yield from pieces[:-1]
            yield (pieces[-1], i + 1) if has_position else pieces[-1]
            yield None

    return rows


def drained(source: PythonSource, most: int | None = None) -> list[Block]:
    found: list[Block] = []
    while not source.ended and (most is None or len(found) < most):
        block = source.read()
        if block is not None:
            found.append(block)
    return found


def values(blocks: list[Block]) -> list[dict[str, Any]]:
    return [row for block in blocks for row in block.data.to_pylist()]


counts = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=8)


@given(counts, st.integers(1, 5), st.integers(1, 5), st.data())
def test_a_function_goes_on_from_any_position_in_blocks_of_any_size(
    shape: list[tuple[int, bool]], first: int, later: int, data: st.DataObject
) -> None:
    number = iter(range(1000))
    blocks = [([{"k": next(number), "v": "x"} for _ in range(count)], at) for count, at in shape]
    source = PythonSource(function_over(blocks, lambda i: first), SCHEMA, "s")
    taken = drained(source, data.draw(st.integers(0, 10)))
    position = json.loads(json.dumps(source.position()))
    again = PythonSource(function_over(blocks, lambda i: later), SCHEMA, "s")
    again.seek(position)
    assert values(taken) + values(drained(again)) == rows_of(blocks)


@given(counts, st.integers(1, 5), st.integers(1, 5), st.data())
def test_a_block_comes_again_with_the_same_rows(
    shape: list[tuple[int, bool]], first: int, later: int, data: st.DataObject
) -> None:
    number = iter(range(1000))
    blocks = [([{"k": next(number), "v": "x"} for _ in range(count)], at) for count, at in shape]
    source = PythonSource(function_over(blocks, lambda i: first), SCHEMA, "s")
    before = drained(source, data.draw(st.integers(0, 6)))
    position = source.position()
    block = source.read()
    while block is None and not source.ended:
        block = source.read()
    if block is None:
        return
    again = PythonSource(function_over(blocks, lambda i: later), SCHEMA, "s")
    again.seek(position, block.span)
    same = again.read()
    assert same is not None
    assert same.data.to_pylist() == block.data.to_pylist()
    assert values(before) + values([same]) + values(drained(again)) == rows_of(blocks)


def test_rows_may_be_tables_dicts_of_columns_and_single_rows() -> None:
    def rows() -> Iterator[Any]:
        yield pa.table({"k": [1], "v": ["a"]})
        yield {"k": [2, 3], "v": ["b", "c"]}
        yield {"k": 4, "v": "d"}
        yield [{"v": "e", "k": 5, "other": 1}]

    source = PythonSource(rows, SCHEMA, "s")
    assert [tuple(row.values()) for row in values(drained(source))] == list(enumerate("abcde", 1))
    assert source.ended


def test_a_value_of_another_type_is_rejected_and_the_rows_around_it_are_not() -> None:
    source = PythonSource(lambda: iter([[{"k": 1}, {"k": "one"}, {"k": 3}]]), SCHEMA, "s")
    (block,) = drained(source)
    assert block.data.column("k").to_pylist() == [1, 3]
    assert [bad.code for bad in block.bad] == ["HR-R102"]


def test_an_error_of_a_function_names_its_place() -> None:
    def rows() -> Iterator[Any]:
        yield {"k": 1, "v": "a"}
        raise ValueError("no more")

    source = PythonSource(rows, SCHEMA, "streams.s.source")
    source.read()
    with pytest.raises(ConnectorError, match=r"HR-C020.*ValueError: no more.*streams\.s\.source"):
        source.read()


def test_a_sink_is_called_with_as_many_arguments_as_it_takes() -> None:
    seen: list[Any] = []
    table = pa.table({"k": [1]})
    PythonTarget(lambda rows: seen.append(rows.num_rows), "q").apply("run", 1, table)
    PythonTarget(lambda rows, commit: seen.append((rows.num_rows, commit)), "q").apply("run", 2, table)
    assert seen == [1, (1, 2)]


def test_an_object_that_knows_its_commits_is_asked() -> None:
    class Store:
        def __init__(self) -> None:
            self.commits: dict[str, int] = {}

        def last(self, run: str) -> int | None:
            return self.commits.get(run)

        def apply(self, run: str, commit: int, rows: pa.Table) -> None:
            self.commits[run] = commit

    target = PythonTarget(Store(), "q")
    assert target.last("a") == 0
    target.apply("a", 3, pa.table({"k": [1]}))
    assert target.last("a") == 3
