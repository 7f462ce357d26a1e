"""Operators that wait: what they take, when they have more to do, and what may leave before what."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.contract import Operator
from headrace.operators.rows_window import rows_window
from headrace.operators.streams import DStreamOperator, IStreamOperator
from headrace.plan.nodes.core import DStream, IStream, Source, Union, Window
from headrace.plan.nodes.windows import Range, Rows
from headrace.time.punctuation import Constant, Punctuation, heartbeat
from headrace.time.timestamp import MAX_TIME

SCHEMA = pa.schema([pa.field("k", pa.int64())])
SOURCE = Source("s", SCHEMA)
WINDOW = Window(SOURCE, Range(5))


def elements(times: Sequence[int], keys: Sequence[int], size: int | None = 5) -> Batch:
    start = np.array(times, np.int64)
    return Batch(
        pa.record_batch({"k": pa.array(keys, pa.int64())}), start, None if size is None else start + size
    )


def connected(operator: Operator) -> Arc:
    arc = Arc()
    operator.connect([arc])
    return arc


def test_a_punctuation_does_not_overtake_the_rows_before_it() -> None:
    operator = IStreamOperator(IStream(WINDOW))
    arc, reader = connected(operator), operator.output.reader()
    arc.append(elements([1], [7]))
    arc.punctuate(Punctuation(patterns=(("k", Constant(7)),)))
    arc.punctuate(heartbeat(3))
    operator.execute(10)
    first, second = reader.take(10), reader.take(10)
    assert isinstance(first, Batch)
    assert isinstance(second, Punctuation)


def test_there_is_no_more_to_do_after_the_end() -> None:
    operator = DStreamOperator(DStream(WINDOW))
    arc = connected(operator)
    arc.append(elements([1], [7]))
    arc.punctuate(heartbeat(MAX_TIME))
    assert operator.more
    operator.execute(10)
    assert not operator.more
    assert operator.needs() == []


def test_an_istream_waits_for_rows_only_and_a_dstream_for_ends() -> None:
    i, d = IStreamOperator(IStream(WINDOW)), DStreamOperator(DStream(WINDOW))
    for operator in (i, d):
        arc = connected(operator)
        arc.append(elements([1], [7]))
        arc.punctuate(heartbeat(1))
        operator.execute(10)
    assert i.needs() == []
    assert [need.heartbeat for need in d.needs()] == [6]


def test_a_row_window_waits_only_where_simultaneous_rows_go_by_content() -> None:
    prompt = rows_window(Window(SOURCE, Rows(2)))
    ordered = rows_window(Window(Union((SOURCE, SOURCE)), Rows(2)))
    assert (prompt.idle_waiting_prone, ordered.idle_waiting_prone) == (False, True)
    for operator in (prompt, ordered):
        connected(operator).append(elements([1, 2, 2], [1, 3, 2], None))
        operator.output.reader()
        operator.execute(10)
    assert (prompt.output.rows_in, ordered.output.rows_in) == (4, 1)
    assert [need.heartbeat for need in ordered.needs()] == [2]
