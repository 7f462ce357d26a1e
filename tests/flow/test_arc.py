"""Arcs: one buffer, a cursor per reader; and the registers beside them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.flow.arc import Arc, Register
from headrace.flow.batch import Batch
from headrace.time.punctuation import Constant, Punctuation, heartbeat
from headrace.time.timestamp import MIN_TIME


def rows(*times: int) -> Batch:
    return Batch(pa.record_batch({"v": pa.array(times, pa.int64())}), np.array(times, np.int64))


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "beat", "take", "until"]), st.integers(0, 1), st.integers(0, 5))
)


@given(STEPS)
def test_each_reader_sees_every_row_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    arc = Arc()
    readers = [arc.reader(), arc.reader()]
    sent: list[int] = []
    seen: list[list[int]] = [[], []]
    now = 0
    for step, who, number in steps:
        if step == "append":
            times = [now + i // 2 for i in range(number)]
            arc.append(rows(*times))
            sent += times
            now = max([now, *times])
        elif step == "beat":
            arc.punctuate(heartbeat(now))
            now += 1
        else:
            reader = readers[who]
            items = [reader.take(number + 1)] if step == "take" else reader.take_until(now - number, 3)
            seen[who] += [t for i in items if isinstance(i, Batch) for t in i.start.tolist()]
        for reader, mine in zip(readers, seen, strict=True):
            assert mine == sent[: len(mine)]
            assert reader.rows == len(sent) - len(mine)
            assert reader.head() == (sent[len(mine)] if len(mine) < len(sent) else None)
        assert arc.held_rows() == len(sent) - min(map(len, seen))


def test_taking_until_a_time_takes_no_later_row_and_the_punctuations_before() -> None:
    arc = Arc()
    reader = arc.reader()
    arc.append(rows(1, 2))
    arc.punctuate(heartbeat(2))
    arc.append(rows(3, 5))
    taken = reader.take_until(3, 100)
    assert [i.start.tolist() if isinstance(i, Batch) else "beat" for i in taken] == [[1, 2], "beat", [3]]
    assert reader.head() == 5
    assert reader.take_until(4, 100) == []


def test_time_at_looks_past_punctuations_and_batches() -> None:
    arc = Arc()
    reader = arc.reader()
    arc.append(rows(1, 2))
    arc.punctuate(heartbeat(2))
    arc.append(rows(3, 5))
    reader.take(1)
    assert [reader.time_at(i) for i in range(3)] == [2, 3, 5]


def test_rows_leave_when_the_last_reader_has_passed_them() -> None:
    arc = Arc()
    fast, slow = arc.reader(), arc.reader()
    arc.append(rows(1, 2))
    fast.take(10)
    assert arc.bytes() > 0
    arc.close(slow)
    assert arc.bytes() == 0


def test_a_late_reader_sees_only_what_comes_after_it() -> None:
    arc = Arc()
    arc.reader()
    arc.append(rows(1))
    late = arc.reader()
    assert late.empty
    arc.append(rows(2))
    assert late.head() == 2


def test_the_heartbeat_of_an_arc_follows_rows_and_heartbeats_alone() -> None:
    arc = Arc()
    assert arc.heartbeat == MIN_TIME
    arc.append(rows(4, 9))
    assert arc.heartbeat == 8
    arc.punctuate(heartbeat(5))
    arc.punctuate(Punctuation(100, (("v", Constant(1)),)))
    assert arc.heartbeat == 8
    arc.punctuate(heartbeat(9))
    assert arc.heartbeat == 9


def test_a_register_takes_a_value_over_once_the_path_is_clear() -> None:
    arc = Arc()
    reader = arc.reader()
    register = Register(path=(reader,))
    arc.append(rows(1))
    assert register.offer(7)
    assert register.read() == MIN_TIME
    reader.take(1)
    assert register.read() == 7
    assert register.active
    assert not register.offer(7)
    assert not register.offer(3)
    assert register.read() == 7
