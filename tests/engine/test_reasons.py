"""Why rows were set apart: every row counts for one reason, and reasons stay few."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.reasons import MOST, Reason, Reasons, merged
from headrace.time.punctuation import Late, Rejected

CODES = st.sampled_from(["HR-R001", "HR-R101", "HR-R102"])
REASONS = st.builds(
    "column {}: {} is not a number".format, st.sampled_from("abcdef"), st.integers().map(repr)
)
REJECTED = st.builds(
    lambda stream, code, reason, n: Rejected(stream, code, reason, raw=("x",) * n),
    st.sampled_from("st"),
    CODES,
    REASONS,
    st.integers(1, 3),
)


def late(stream: str, times: list[int], admitted: list[bool]) -> Late:
    rows = pa.RecordBatch.from_pydict({"v": times})
    n = len(times)
    return Late(
        stream, rows, np.array(times, np.int64), 100, np.zeros(n, np.int64), np.array(admitted, np.bool_)
    )


LATE = st.builds(
    lambda stream, rows: late(stream, [t for t, _ in rows], [a for _, a in rows]),
    st.sampled_from("st"),
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=1, max_size=4),
)


@given(st.lists(LATE), st.lists(REJECTED))
def test_every_row_counts_once_and_groups_are_few(late: list[Late], rejected: list[Rejected]) -> None:
    reasons = Reasons()
    reasons.add(late, rejected)
    found = reasons.all()
    for stream in "st":
        lost = [(each, ~each.admitted) for each in late if each.stream == stream]
        mine = [each for each in found if each.stream == stream]
        assert sum(r.rows for r in mine if r.kind == "late") == sum(int(mask.sum()) for _, mask in lost)
        worst = [int(each.lateness[mask].max()) for each, mask in lost if mask.any()]
        assert max((r.worst for r in mine if r.kind == "late"), default=0) == max(worst, default=0)
        expected = sum(len(each) for each in rejected if each.stream == stream)
        assert sum(r.rows for r in mine if r.kind == "rejected") == expected
        assert len(mine) <= MOST + 2
    assert [each.rows for each in found] == sorted((each.rows for each in found), reverse=True)


@given(st.lists(REJECTED), st.integers(0, 5))
def test_counting_can_be_interrupted_and_divided(rejected: list[Rejected], at: int) -> None:
    whole, first, rest = Reasons(), Reasons(), Reasons()
    whole.add((), rejected)
    first.add((), rejected[:at])
    rest.restore(first.state())
    rest.add((), rejected[at:])
    assert set(rest.all()) == set(whole.all())
    together = merged((*first.all(), *whole.all()))
    assert sum(r.rows for r in together) == sum(r.rows for r in (*first.all(), *whole.all()))


def test_reasons_that_differ_in_a_value_are_one_and_columns_are_told_apart() -> None:
    reasons = Reasons()
    said = [("price", "x", 3), ("at", "2026-13-01", 1), ("price", "y", 2)]
    reasons.add((), [Rejected("s", "HR-R102", f"{c}: '{v}' is no value", raw=("",) * n) for c, v, n in said])
    assert reasons.all() == (
        Reason("rejected", "s", 5, "HR-R102", "price: 'x' is no value"),
        Reason("rejected", "s", 1, "HR-R102", "at: '2026-13-01' is no value"),
    )
