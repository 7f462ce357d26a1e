"""MATCH_RECOGNIZE: equality with the oracle, answers when they are certain, state of open matches only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.errors import PlanError
from headrace.expressions import col, lit
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.contract import Need
from headrace.operators.match import MatchOperator
from headrace.operators.state.automaton import automaton
from headrace.plan.analysis.check import check
from headrace.plan.analysis.partitioning import partition
from headrace.plan.nodes.core import AggregateCall, Project, Source, Window
from headrace.plan.nodes.match import (
    After,
    Chain,
    Either,
    Fold,
    Match,
    One,
    Pattern,
    Pick,
    Repeat,
    Skip,
    Variable,
)
from headrace.plan.nodes.windows import Now
from headrace.plan.rewrite import optimize
from headrace.state.part import encode
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream, difference
from headrace.time.punctuation import Constant, Punctuation, heartbeat
from tests.engine.driving import assert_oracles_answer, execute
from tests.laws import effort
from tests.plan.analysis.test_partitioning import apart
from tests.strategies.match_plans import match_of
from tests.strategies.plans import Case
from tests.strategies.runs import runs
from tests.strategies.schemas import rows, schemas

S = Source("s", pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int64())]))
A, B, C = One("A"), One("B"), One("C")
LETTERS = tuple(Variable(name, col("v").eq(lit(name.lower()))) for name in "ABC")
FIRST, LAST = Pick("first", "n", last=False), Pick("last", "n")


def matching(pattern: Pattern, **more: Any) -> Match:
    """A pattern whose variables are rows with the letters a, b and c."""
    return Match(S, ("k",), pattern, more.pop("variables", LETTERS), (FIRST, LAST), **more)


# ------------------------------------------------------------------------------------------------ meaning


@st.composite
def matches(draw: st.DrawFn) -> Case:
    """A pattern over few rows, or a simple one over more."""
    source = Source("s", draw(schemas()))
    simple = draw(st.booleans())
    plan = match_of(draw, source, simple)
    return Case(plan, {"s": draw(rows(source.columns, 30 if simple else 8))})


@effort(2, "many patterns, conditions and ways to skip")
@given(st.data())
def test_the_matches_are_what_the_oracle_says_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(matches())
    assert_oracles_answer(case, data.draw(runs(case)))


@given(st.data())
def test_columns_that_nobody_reads_are_dropped(data: st.DataObject) -> None:
    case = data.draw(matches())
    names = data.draw(st.lists(st.sampled_from(case.plan.schema.names), min_size=1, max_size=2, unique=True))
    plan = Project(case.plan, tuple((name, col(name)) for name in names))
    narrow = optimize(plan)
    check(narrow)
    expected = oracle.stream(plan, case.sources)
    assert not difference(oracle.stream(narrow, case.sources), expected)
    run = data.draw(runs(Case(narrow, case.sources)))
    assert_same_stream(execute(Case(narrow, case.sources), run)[0], expected, schema=plan.schema)


@given(st.data())
def test_shards_by_the_partition_give_the_answer_together(data: st.DataObject) -> None:
    case = data.draw(matches())
    assert isinstance(case.plan, Match)
    found = partition(case.plan)
    if not case.plan.keys:
        assert found.keys is None
    if found.keys is not None:
        assert not difference(apart(case.plan, case.sources), oracle.stream(case.plan, case.sources))


def spelled(pattern: Pattern, letters: str, **more: Any) -> list[str]:
    """The letters of each match, if the rows of one partition have these letters."""
    rows = [{"k": 1, "v": letter, "n": i} for i, letter in enumerate(letters)]
    plan, engine = matching(pattern, **more), Engine()
    engine.add("q", plan)
    engine.push("s", pa.RecordBatch.from_pylist(rows, S.columns), list(range(len(rows))))
    engine.streams.end("s")
    answers = engine.drain()
    assert_same_stream(answers, oracle.stream(plan, {"s": list(enumerate(rows))}))
    found = [row for batch in answers for row in batch.data.to_pylist()]
    return [letters[row["first"] : row["last"] + 1] for row in found]


ANY = (LETTERS[0], Variable("B"), LETTERS[2])


@pytest.mark.parametrize(
    ("pattern", "letters", "found"),
    [
        (Chain((A, Repeat(B, 1, None), C)), "abbcabxcac", ["abbc"]),
        (Chain((A, Repeat(B, 0, None), C)), "abbcabxcac", ["abbc", "ac"]),
        (Chain((A, Repeat(B, 2, 3), C)), "abcabbcabbbbc", ["abbc"]),
        (Chain((A, Repeat(B, 2, 2))), "abbb", ["abb"]),
        (Chain((A, Repeat(B, 0, 1), C)), "acabcabbc", ["ac", "abc"]),
        (Chain((A, Repeat(B, 1, None, False))), "abbb", ["ab"]),
        (Chain((A, Repeat(B, 1, None))), "abbba", ["abbb"]),
        (Chain((A, Either((B, C)), A)), "abaaca", ["aba", "aca"]),
        (Repeat(Chain((A, B)), 2, None), "abababcab", ["ababab"]),
        (Either((Chain((A, B, C)), A)), "aabca", ["a", "abc", "a"]),
    ],
    ids=str,
)
def test_patterns(pattern: Pattern, letters: str, found: list[str]) -> None:
    assert spelled(pattern, letters) == found


def test_a_reluctant_repetition_ends_at_the_first_row_that_goes_on() -> None:
    greedy, reluctant = (Chain((A, Repeat(B, 0, None, greedy), C)) for greedy in (True, False))
    assert spelled(greedy, "abcbc", variables=ANY) == ["abcbc"]
    assert spelled(reluctant, "abcbc", variables=ANY) == ["abc"]


@pytest.mark.parametrize(
    ("skip", "found"),
    [
        (Skip(After.PAST_LAST_ROW), ["aabb"]),
        (Skip(After.TO_NEXT_ROW), ["aabb", "abb"]),
        (Skip(After.TO_FIRST, "B"), ["aabb"]),
        (Skip(After.TO_LAST, "A"), ["aabb", "abb"]),
        (Skip(After.TO_FIRST, "A"), ["aabb", "abb"]),
        (Skip(After.TO_LAST, "C"), ["aabb", "abb"]),
    ],
    ids=str,
)
def test_where_the_search_goes_on(skip: Skip, found: list[str]) -> None:
    """To the next row if the variable has no row, or if the search would not go on."""
    pattern = Chain((Repeat(A, 1, None), Repeat(B, 1, None), Repeat(C, 0, 1)))
    assert spelled(pattern, "aabbx", skip=skip) == found


def test_a_loop_in_a_loop_is_one_state_a_variable() -> None:
    assert automaton(matching(Repeat(Repeat(Repeat(A, 0, None), 0, None), 1, None))).size == 2
    assert automaton(matching(Chain((A, Repeat(Chain((B, C)), 2, 4))))).size == 9


# ---------------------------------------------------------------------------------------------- promptness


def connected(plan: Match) -> tuple[MatchOperator, Arc]:
    operator, arc = MatchOperator(plan), Arc()
    operator.connect([arc])
    operator.output.reader()
    return operator, arc


def batch(begin: int, letters: str, key: int = 1) -> Batch:
    times = np.arange(begin, begin + len(letters))
    keys = pa.array(np.full(len(letters), key))
    data = pa.RecordBatch.from_arrays([keys, pa.array(list(letters)), pa.array(times)], schema=S.columns)
    return Batch(data, times)


def settled(operator: MatchOperator) -> int:
    """How many rows have come out once nothing more can be done."""
    while operator.more:
        operator.execute(1000)
    return operator.rows_out


def test_a_match_is_out_with_its_last_row_if_nothing_can_change_it() -> None:
    operator, arc = connected(matching(Chain((A, Repeat(B, 1, None), C))))
    arc.append(batch(1, "abb"))
    arc.punctuate(heartbeat(3))
    assert settled(operator) == 0
    arc.append(batch(4, "c"))
    assert settled(operator) == 1


def test_a_match_that_may_grow_is_out_with_the_row_that_ends_it() -> None:
    operator, arc = connected(matching(Chain((A, Repeat(B, 1, None)))))
    promised: list[int] = []
    operator.promise = promised.append
    arc.append(batch(1, "abb"))
    arc.punctuate(heartbeat(9))
    assert settled(operator) == 0
    assert promised == [2]
    assert operator.needs() == []
    arc.append(batch(10, "x"))
    assert settled(operator) == 1
    assert promised[-1] == 9


def test_a_match_that_may_grow_is_out_when_within_is_over() -> None:
    operator, arc = connected(matching(Chain((A, Repeat(B, 1, None))), within=5))
    arc.append(batch(1, "abb"))
    arc.punctuate(heartbeat(4))
    assert settled(operator) == 0
    assert operator.needs() == [Need(0, 5)]
    arc.punctuate(heartbeat(5))
    assert settled(operator) == 1


def test_a_match_waits_for_an_uncertain_one_of_an_earlier_time() -> None:
    operator, arc = connected(matching(Either((Chain((A, B, C)), A)), within=5))
    arc.append(batch(1, "ab", key=1))
    arc.append(batch(3, "abc", key=2))
    arc.punctuate(heartbeat(5))
    assert settled(operator) == 2
    out = operator.output.readers[0].take(10)
    assert isinstance(out, Batch)
    assert out.start.tolist() == [1, 5]


def test_a_closed_partition_is_settled() -> None:
    operator, arc = connected(matching(Chain((A, Repeat(B, 1, None)))))
    arc.append(batch(1, "abb", key=1))
    arc.append(batch(4, "abb", key=2))
    arc.punctuate(heartbeat(6))
    assert settled(operator) == 0
    arc.punctuate(Punctuation(patterns=(("k", Constant(1)),)))
    assert settled(operator) == 1


# --------------------------------------------------------------------------------------------------- state


def fed(plan: Match, letters: str, count: int, keys: int) -> MatchOperator:
    """An operator that has seen `count` rows with random letters."""
    operator, arc = connected(plan)
    rng = np.random.default_rng(3)
    for begin in range(0, count, 1000):
        times = np.arange(begin, begin + 1000)
        codes = rng.integers(0, keys, 1000) if keys < count else times
        values = pa.array(rng.choice(list(letters), 1000))
        data = pa.RecordBatch.from_arrays([pa.array(codes), values, pa.array(times)], schema=S.columns)
        arc.append(Batch(data, times))
        arc.punctuate(heartbeat(begin + 999))
        settled(operator)
        operator.output.readers[0].take(1 << 30)
    return operator


@pytest.mark.parametrize("after", list(After))
def test_what_can_no_longer_match_is_forgotten(after: After) -> None:
    plan = matching(Chain((A, Repeat(B, 0, 3), C)), skip=Skip(after, "B" if "to " in after.value else None))
    short, long = (fed(plan, "abcx", count, 50).memory.bytes() for count in (10_000, 60_000))
    assert long <= short * 1.2


@pytest.mark.parametrize("keys", [50, 1 << 40])
def test_what_is_older_than_within_is_forgotten(keys: int) -> None:
    plan = matching(Chain((A, Repeat(B, 0, None, False), C)), variables=ANY, within=500)
    short, long = (fed(plan, "abx", count, keys).memory.bytes() for count in (10_000, 60_000))
    assert long <= short * 1.2


def test_attempts_with_the_same_future_are_one() -> None:
    plan = matching(Chain((A, Repeat(B, 0, None, False), C)), variables=ANY)
    plan = replace(plan, measures=(Pick("c", "n", ("C",)),))
    short, long = (fed(plan, "abx", count, 50).memory.bytes() for count in (10_000, 60_000))
    assert long <= short * 1.2


def test_the_cost_of_a_snapshot_follows_the_change() -> None:
    operator, arc = connected(matching(Chain((A, Repeat(B, 1, None), C))))
    keys = np.arange(20_000)
    data = pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array(["a"] * 20_000), pa.array(keys)], S.schema.names
    )
    arc.append(Batch(data.cast(S.columns), np.zeros(20_000, np.int64)))
    arc.punctuate(heartbeat(5))
    settled(operator)

    def size(full: bool) -> int:
        return sum(len(encode(part.changes(full))) for part in operator.state().values())

    full = size(True)
    arc.append(batch(7, "bc", key=3))
    arc.punctuate(heartbeat(9))
    assert settled(operator) == 1
    assert size(False) < full / 200
    assert size(False) < full / 200


# ------------------------------------------------------------------------------------------------ refusals

REFUSED: dict[str, tuple[Match, str]] = {
    "a pattern of nothing": (matching(Repeat(A, 0, None)), "HR-P046"),
    "a way of nothing": (matching(Either((A, Repeat(B, 0, 1)))), "HR-P046"),
    "an unknown variable": (matching(Chain((A, One("D")))), "HR-P047"),
    "a variable twice": (matching(A, variables=(*LETTERS, LETTERS[0])), "HR-P047"),
    "a skip to an unknown variable": (matching(A, skip=Skip(After.TO_LAST, "D")), "HR-P047"),
    "a huge pattern": (matching(Repeat(Repeat(A, 100, 100), 100, 100)), "HR-P048"),
    "a condition that is none": (matching(A, variables=(Variable("A", col("n")),)), "HR-P049"),
    "an unknown key": (replace(matching(A), keys=("z",)), "HR-P005"),
    "an unknown column": (replace(matching(A), measures=(Fold(AggregateCall("x", "sum", "z")),)), "HR-P005"),
    "no time at all": (matching(A, within=0), "HR-P001"),
    "a relation": (replace(matching(A), input=Window(S, Now())), "HR-P022"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_pattern_that_means_nothing_is_refused(name: str) -> None:
    plan, code = REFUSED[name]
    with pytest.raises(PlanError) as caught:
        check(plan)
    assert caught.value.code == code
    assert caught.value.hint
