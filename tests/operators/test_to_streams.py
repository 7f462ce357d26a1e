"""Distinct, except and the streams: punctuations, state that they free, and the end of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from headrace import tuning
from headrace.flow.batch import Batch
from headrace.operators.contract import Waiting
from headrace.operators.distinct import DistinctOperator
from headrace.operators.except_ import ExceptOperator
from headrace.operators.state.net_changes import Changes
from headrace.operators.streams import DStreamOperator, IStreamOperator, RStreamOperator
from headrace.plan.nodes.core import Distinct, DStream, Except, IStream, RStream, Source, Window
from headrace.plan.nodes.windows import Range
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME

SCHEMA = pa.schema([pa.field("k", pa.int64())])
BELOW = Window(Source("s", SCHEMA), Range(5))
SEVEN = Punctuation(patterns=(("k", Constant(7)),))


def elements(
    keys: Sequence[int], starts: Sequence[int], ends: Sequence[int], signs: Sequence[int] = ()
) -> Batch:
    data = pa.record_batch({"k": pa.array(keys, pa.int64())})
    sign = np.array(signs, np.int8) if signs else None
    return Batch(data, np.array(starts, np.int64), np.array(ends, np.int64), sign)


def out(
    operator: Waiting, frontier: int, batch: Batch | None = None, input: int = 0
) -> list[tuple[int, int]]:
    if batch is not None:
        operator.ingest(input, batch)
    answer = operator.answer(frontier)
    if answer is None:
        return []
    return list(zip(answer.start.tolist(), answer.data.column(0).to_pylist(), strict=True))


def test_changes_are_net_and_in_order_of_time() -> None:
    changes = Changes(SCHEMA)
    changes.ingest(elements([1, 2, 1], [0, 0, 5], [5, 3, 9]))
    change = changes.take(6)
    assert change.times.tolist() == [0, 0, 3]
    assert change.codes.tolist() == [0, 1, 1]
    assert change.deltas[:, 0].tolist() == [1, 1, -1]
    assert changes.next() == 9


def test_changes_past_the_frontier_wait() -> None:
    changes = Changes(SCHEMA)
    changes.ingest(elements([1, 2], [0, 8], [3, 9]))
    assert changes.take(5).times.tolist() == [0, 3]
    assert changes.take(9).times.tolist() == [8, 9]


def test_the_ends_of_dropped_contents_never_count_again() -> None:
    changes = Changes(SCHEMA)
    changes.ingest(elements([1, 2, 3], [0, 0, 0], [5, 5, 5]))
    changes.take(0)
    for _ in range(2):
        changes.drop(np.arange(len(changes.contents)) > 0)
    last = changes.take(5)
    assert changes.rows(last.codes).to_pylist() == [{"k": 3}]
    assert last.deltas.tolist() == [[-1]]


@pytest.mark.parametrize(
    ("operator", "while_valid"),
    [
        (DistinctOperator(Distinct(BELOW)), None),
        (DStreamOperator(DStream(BELOW)), None),
        (RStreamOperator(RStream(BELOW, 2)), None),
        (IStreamOperator(IStream(BELOW)), SEVEN),
    ],
    ids=lambda o: type(o).__name__,
)
def test_a_punctuation_passes_when_nothing_it_speaks_of_can_come_out(
    operator: Waiting, while_valid: Punctuation | None
) -> None:
    assert operator.on_punctuation(0, SEVEN) == SEVEN
    out(operator, 2, elements([7, 8], [1, 2], [6, 20]))
    assert operator.on_punctuation(0, SEVEN) == while_valid
    out(operator, 6)
    assert operator.on_punctuation(0, SEVEN) == SEVEN


def test_a_difference_passes_what_its_left_side_promises() -> None:
    operator = ExceptOperator(Except(BELOW, BELOW))
    out(operator, 1, elements([7], [1], [6]), input=1)
    assert operator.on_punctuation(1, SEVEN) is None
    assert operator.on_punctuation(0, SEVEN) == SEVEN
    out(operator, 2, elements([7], [2], [9]), input=0)
    assert operator.on_punctuation(0, SEVEN) is None


def test_an_istream_forgets_what_can_no_longer_cancel() -> None:
    operator = IStreamOperator(IStream(BELOW))
    out(operator, 1, elements([7, 8], [1, 1], [6, 6]))
    operator.on_punctuation(0, SEVEN)
    assert operator.changes.contents.keys.rows(np.arange(1)).to_pylist() == [{"k": 8}]
    assert out(operator, 6, elements([8], [6], [9])) == [], "the other one still cancels"


@tuning.using(spill_file_bytes=0)
def test_the_ends_of_dropped_contents_are_not_spilled() -> None:
    """They were put away as ends of the last content, and one more row of that was lost when they came."""
    operator = IStreamOperator(IStream(BELOW))
    out(operator, 1, elements([7, 8], [1, 1], [6, 6]))
    operator.on_punctuation(0, SEVEN)
    operator.memory.spill(1 << 30)
    assert out(operator, 6, elements([8, 8], [6, 6], [9, 9])) == [(6, 8)]


def test_copies_that_come_and_go_at_one_instant_cancel() -> None:
    i, d = IStreamOperator(IStream(BELOW)), DStreamOperator(DStream(BELOW))
    batch = elements([1, 1, 1], [0, 3, 3], [3, 9, 9])
    assert out(i, 9, batch) == [(0, 1), (3, 1)]
    assert out(d, 9, batch) == [(9, 1), (9, 1)]


def test_a_relation_is_reported_at_every_tick() -> None:
    operator = RStreamOperator(RStream(BELOW, 3))
    assert out(operator, 4, elements([1, 1, 2], [0, 1, 4], [9, 4, 6])) == [(2, 1), (2, 1)]
    assert out(operator, 9) == [(5, 1), (5, 2), (8, 1)]
    assert operator.due() == MAX_TIME


def test_open_rows_are_reported_while_time_goes_on_and_no_longer_than_that() -> None:
    operator = RStreamOperator(RStream(BELOW, 2))
    assert out(operator, 4, elements([1], [0], [MAX_TIME])) == [(1, 1), (3, 1)]
    assert operator.due() == 5
    withdrawn = elements([1, 2], [8, 8], [MAX_TIME, MAX_TIME], [-1, 1])
    assert out(operator, 8, withdrawn) == [(5, 1), (7, 1)]
    assert out(operator, 10) == [(9, 2)]
    assert out(operator, MAX_TIME) == []


def test_at_the_end_open_rows_are_reported_up_to_the_last_change() -> None:
    operator = RStreamOperator(RStream(BELOW, 2))
    batch = elements([1, 2], [0, 6], [MAX_TIME, 8])
    assert out(operator, MAX_TIME, batch) == [(1, 1), (3, 1), (5, 1), (7, 1), (7, 2)]
    assert operator.due() == MAX_TIME
