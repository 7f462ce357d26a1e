"""Laws that hold of every relation, whatever the data."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.expressions import col
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    DStream,
    Except,
    Granularity,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Union,
    Window,
)
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded
from headrace.testing import oracle
from headrace.testing.compare import Bag
from tests.oracle.build import K_V, A, B
from tests.strategies import schemas

INSTANTS = range(-8, 40)
DATA = st.fixed_dictionaries({"a": schemas.rows(K_V, 12), "b": schemas.rows(K_V, 12)})
SIZES = st.integers(1, 9)
TIME_WINDOWS = st.one_of(
    SIZES.map(Range), st.builds(Sliding, SIZES, SIZES), st.just(Now()), st.just(Unbounded())
)
WINDOWS = st.one_of(TIME_WINDOWS, SIZES.map(Rows), SIZES.map(lambda n: Rows(n, ("k",))))
FUNCTIONS = ("count", "count_distinct", "sum", "avg", "min", "max", "variance", "stddev_pop", "first", "last")
CALLS = tuple(AggregateCall(function, function, "v") for function in FUNCTIONS)


def history(plan: Plan, data: oracle.Sources) -> list[Bag]:
    relation = oracle.relation(plan, data)
    return [relation.at(instant) for instant in INSTANTS]


def bags(plan: Plan, data: oracle.Sources) -> dict[int, Bag]:
    found: dict[int, Bag] = {}
    for time, row in oracle.stream(plan, data):
        found.setdefault(time, Counter())[row] += 1
    return found


@given(DATA, st.builds(Sliding, SIZES, SIZES), st.sampled_from([(), ("k",)]))
def test_a_sliding_aggregate_is_the_aggregate_of_the_sliding_window(
    data: oracle.Sources, window: Sliding, keys: tuple[str, ...]
) -> None:
    panes = SlidingAggregate(A, keys, CALLS, window)
    assert history(panes, data) == history(Aggregate(Window(A, window), keys, CALLS), data)


@given(DATA, SIZES, SIZES)
def test_each_window_is_reported_once_with_the_rows_between_its_bounds(
    data: oracle.Sources, size: int, slide: int
) -> None:
    """Windows start at multiples of the slide, as in Spark and Flink, and are answered at end − 1."""
    window = Sliding(size, slide)
    plan = SlidingAggregate(A, (), (AggregateCall("n", "count"),), window, ("begin", "end"))
    found = oracle.stream(RStream(plan, slide, window.ticks.phase), data)
    assert len({end for _, (_, _, end) in found}) == len(found)
    for time, (count, begin, end) in found:
        assert (time, end - begin, begin % slide) == (end - 1, size, 0)
        assert count == sum(begin <= each < end for each, _ in data["a"])


@given(DATA, TIME_WINDOWS, schemas.predicates(K_V))
def test_select_commutes_with_time_windows(data: oracle.Sources, window: Range, predicate: object) -> None:
    before = Window(Select(A, predicate), window)  # type: ignore[arg-type]
    after = Select(Window(A, window), predicate)  # type: ignore[arg-type]
    assert history(before, data) == history(after, data)


@given(DATA, WINDOWS, WINDOWS)
def test_union_is_commutative_and_adds_copies(data: oracle.Sources, one: Range, other: Range) -> None:
    left, right = Window(A, one), Window(B, other)
    both = history(Union((left, right)), data)
    assert both == history(Union((right, left)), data)
    assert both == [x + y for x, y in zip(history(left, data), history(right, data), strict=True)]


@given(DATA, WINDOWS)
def test_a_union_of_streams_seen_through_a_row_window_is_commutative(
    data: oracle.Sources, spec: Range
) -> None:
    assert history(Window(Union((A, B)), spec), data) == history(Window(Union((B, A)), spec), data)


@given(DATA, WINDOWS, WINDOWS)
def test_bag_difference_and_intersection_make_up_the_left(
    data: oracle.Sources, one: Range, other: Range
) -> None:
    left, right = Window(A, one), Window(B, other)
    rest = Except(left, right, all=True)
    common = Except(left, rest, all=True)
    assert history(Union((rest, common)), data) == history(left, data)
    both = zip(history(left, data), history(right, data), strict=True)
    assert history(common, data) == [x & y for x, y in both]


@given(DATA, WINDOWS, WINDOWS)
def test_set_difference_is_of_distinct_rows(data: oracle.Sources, one: Range, other: Range) -> None:
    left, right = Window(A, one), Window(B, other)
    plain = history(Except(left, right), data)
    assert plain == history(Except(Distinct(left), Distinct(right), all=True), data)


@given(DATA, WINDOWS)
def test_distinct_is_the_group_of_all_columns(data: oracle.Sources, spec: Range) -> None:
    window = Window(A, spec)
    groups = Aggregate(window, ("k", "v"), (AggregateCall("n", "count"),))
    distinct = history(Project(groups, (("k", col("k")), ("v", col("v")))), data)
    assert distinct == history(Distinct(window), data) == history(Distinct(Distinct(window)), data)


@given(DATA, WINDOWS, WINDOWS)
def test_entering_less_leaving_rows_integrate_back_to_the_relation(
    data: oracle.Sources, one: Range, other: Range
) -> None:
    for plan in (
        Window(A, one),
        Except(Window(A, one), Window(B, other)),
        Aggregate(Window(A, one), (), CALLS),
    ):
        entered, left = bags(IStream(plan), data), bags(DStream(plan), data)
        content: Bag = Counter()
        for instant, expected in zip(INSTANTS, history(plan, data), strict=True):
            content = content - left.get(instant, Counter()) + entered.get(instant, Counter())
            assert content == expected


@given(DATA, WINDOWS)
def test_no_row_enters_and_leaves_at_one_instant(data: oracle.Sources, spec: Range) -> None:
    plan = Window(A, spec)
    entered, left = bags(IStream(plan), data), bags(DStream(plan), data)
    assert not any(entered[instant] & left[instant] for instant in entered.keys() & left.keys())


@given(DATA, WINDOWS, WINDOWS)
def test_join_is_commutative_but_for_the_order_of_columns(
    data: oracle.Sources, one: Range, other: Range
) -> None:
    left = Window(A, one)
    right = Project(Window(B, other), (("k2", col("k")), ("v2", col("v"))))
    flipped = Join(right, left, ("k2",), ("k",))
    columns = tuple((name, col(name)) for name in ("k", "v", "k2", "v2"))
    assert history(Join(left, right, ("k",), ("k2",)), data) == history(Project(flipped, columns), data)


@given(DATA, WINDOWS, WINDOWS)
def test_a_key_is_a_residual_equality(data: oracle.Sources, one: Range, other: Range) -> None:
    left = Window(A, one)
    right = Project(Window(B, other), (("k2", col("k")), ("v2", col("v"))))
    keyed = history(Join(left, right, ("k",), ("k2",)), data)
    assert keyed == history(Join(left, right, residual=col("k").eq(col("k2"))), data)


@given(DATA, TIME_WINDOWS)
def test_a_grain_of_one_tick_changes_nothing(data: oracle.Sources, window: Range) -> None:
    assert history(Granularity(Window(A, window), 1), data) == history(Window(A, window), data)


@given(DATA, SIZES, SIZES)
def test_a_coarser_grain_agrees_at_its_multiples(data: oracle.Sources, size: int, grain: int) -> None:
    coarse = oracle.relation(Granularity(Window(A, Range(size)), grain), data)
    fine = oracle.relation(Window(A, Range(size)), data)
    for instant in INSTANTS:
        before, after = instant // grain * grain, (instant // grain + 1) * grain
        through = Counter(e.row for e in fine.elements if e.start <= before and after <= e.end)
        assert coarse.at(instant) == through


@given(DATA)
def test_windows_meet_at_their_extremes(data: oracle.Sources) -> None:
    assert history(Window(A, Range(1)), data) == history(Window(A, Now()), data)
    assert history(Window(A, Rows(1000)), data) == history(Window(A, Unbounded()), data)
    assert history(Window(A, Sliding(3, 1)), data) == history(Window(A, Range(3)), data)
    assert bags(RStream(Window(A, Now())), data) == bags(A, data)
