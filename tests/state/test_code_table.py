"""Code tables: values by code, snapshots of what was touched."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.code_table import CodeTable
from headrace.state.part import decode, encode

STEPS = st.lists(st.tuples(st.sampled_from(["grow", "write", "keep", "save", "full"]), st.integers(0, 7)))


def table() -> CodeTable:
    return CodeTable(count=(np.int64, 0), mark=(np.float64, -1.0))


def contents(t: CodeTable) -> list[list[float]]:
    return [t["count"].tolist(), t["mark"].tolist()]


@given(STEPS)
def test_a_full_chunk_and_every_later_one_give_the_same_table(steps: list[tuple[str, int]]) -> None:
    t, copy = table(), table()
    copy.apply(t.changes(full=False))
    for step, n in steps:
        if step in ("save", "full"):
            copy.apply(decode(encode(t.changes(full=step == "full"))))
            assert contents(copy) == contents(t)
        else:
            step_table(t, step, n)


def step_table(t: CodeTable, step: str, n: int) -> None:
    codes = np.arange(len(t))[n % 3 :: 2]
    if step == "grow":
        t.grow(len(t) + n)
    elif step == "write":
        t["count"][codes] += n
        t["mark"][codes] = n
        t.touch(codes)
    elif step == "keep":
        t.keep(np.arange(len(t)) % 3 != n % 3)


def test_touches_that_nobody_snapshots_are_not_remembered() -> None:
    t = table()
    t.grow(1)
    t.changes(full=True)
    for _ in range(5000):
        t.touch(np.array([0]))
    assert len(t._touched) <= 1100
