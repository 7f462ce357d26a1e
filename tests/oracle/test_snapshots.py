"""Snapshot semantics: at each instant the oracle's intervals hold what relational algebra gives there.

`content` is a second reading of the definitions, with no intervals at all: what a window holds at an instant
is decided from the rows' times, and everything above it is ordinary algebra on bags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cmp_to_key, singledispatch

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.expressions import evaluate
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import Schema
from headrace.testing import oracle
from headrace.testing.compare import Bag, Event, Row, canonical_row, order_key, row_order
from headrace.testing.folds import fold, fold_user
from tests.strategies import plans, schemas

INSTANTS = range(-9, 45)


def content(plan: Plan, data: oracle.Sources, now: int) -> Bag:
    """The bag of rows of a relation plan at the instant `now`."""
    return node_content(plan, data, now)


@singledispatch
def node_content(plan: Plan, data: oracle.Sources, now: int) -> Bag:
    raise AssertionError(type(plan))


@node_content.register
def _(plan: nodes.Select, data: oracle.Sources, now: int) -> Bag:
    names, schema = plan.schema.names, plan.schema
    below = content(plan.input, data, now)
    kept = [
        row for row in below if evaluate(plan.predicate, dict(zip(names, row, strict=True)), schema) is True
    ]
    return Counter({row: below[row] for row in kept})


@node_content.register
def _(plan: nodes.Project, data: oracle.Sources, now: int) -> Bag:
    below = plan.input.schema
    rows = [dict(zip(below.names, row, strict=True)) for row in content(plan.input, data, now).elements()]
    return Counter(tuple(evaluate(e, row, below) for _, e in plan.columns) for row in rows)


@node_content.register
def _(plan: Unnest, data: oracle.Sources, now: int) -> Bag:
    below, nothing = plan.input.schema, (None,) * len(plan.names)

    def parts(element: object) -> Row:
        if not plan.takes_apart:
            return (element,)
        return (
            nothing if element is None else tuple(element.values() if isinstance(element, dict) else element)
        )

    def expanded(row: Row) -> list[Row]:
        elements = evaluate(plan.operand, dict(zip(below.names, row, strict=True)), below)
        made = [(parts(element), number) for number, element in enumerate(elements or (), 1)]
        if plan.outer and not made:
            made = [(nothing, None)]
        return [canonical_row((*row, *part, *([] if plan.ordinal is None else [n]))) for part, n in made]

    return Counter(new for row in content(plan.input, data, now).elements() for new in expanded(row))


@node_content.register
def _(plan: nodes.Union, data: oracle.Sources, now: int) -> Bag:
    return sum((content(branch, data, now) for branch in plan.branches), start=Counter())


def pairs_of(plan: nodes.Pairing, left: Bag, right: Bag) -> Bag:
    """The pairs of rows that meet the condition of a join."""
    names = plan.pair_schema.names
    pairs = {one + other: left[one] * right[other] for one in left for other in right}

    def joins(row: Row) -> bool:
        named = dict(zip(names, row, strict=True))
        equal = all((safe or named[a] is not None) and named[a] == named[b] for a, b, safe in plan.equalities)
        return equal and (plan.residual is None or evaluate(plan.residual, named, plan.pair_schema) is True)

    return Counter({row: count for row, count in pairs.items() if joins(row)})


@node_content.register
def _(plan: nodes.Join, data: oracle.Sources, now: int) -> Bag:
    return pairs_of(plan, content(plan.left, data, now), content(plan.right, data, now))


@node_content.register
def _(plan: OuterJoin, data: oracle.Sources, now: int) -> Bag:
    left, right, width = content(plan.left, data, now), content(plan.right, data, now), len(plan.left.schema)
    pairs = pairs_of(plan, left, right)
    met_left, met_right = {row[:width] for row in pairs}, {row[width:] for row in pairs}
    alone = Counter({row: count for row, count in left.items() if row not in met_left})
    alone_right = Counter({row: count for row, count in right.items() if row not in met_right})
    left_nulls, right_nulls = ((None,) * len(each.schema) for each in plan.inputs)
    padded = Counter({row + right_nulls: count for row, count in alone.items()})
    return {
        JoinKind.LEFT: pairs + padded,
        JoinKind.FULL: pairs
        + padded
        + Counter({left_nulls + row: count for row, count in alone_right.items()}),
        JoinKind.SEMI: left - alone,
        JoinKind.ANTI: alone,
    }[plan.kind]


@node_content.register
def _(plan: nodes.Aggregate, data: oracle.Sources, now: int) -> Bag:
    return groups(plan, list(content(plan.input, data, now).elements()))


@node_content.register
def _(plan: nodes.SlidingAggregate, data: oracle.Sources, now: int) -> Bag:
    begin, end = newest_window(plan.window, now)
    inside = [row for time, row in happened(plan.input, data) if begin <= time < end]
    bounds = (begin, end) if plan.bounds else ()
    return Counter({row + bounds: 1 for row in groups(plan, inside)})


@node_content.register
def _(plan: nodes.Distinct, data: oracle.Sources, now: int) -> Bag:
    return Counter(set(content(plan.input, data, now)))


@node_content.register
def _(plan: nodes.Except, data: oracle.Sources, now: int) -> Bag:
    left, right = content(plan.left, data, now), content(plan.right, data, now)
    return left - right if plan.all else Counter(set(left) - set(right))


@node_content.register
def _(plan: nodes.Table, data: oracle.Sources, now: int) -> Bag:
    return Counter(tuple(row[name] for name in plan.schema.names) for _, row in data[plan.name])


@node_content.register
def _(plan: TopN, data: oracle.Sources, now: int) -> Bag:
    """A row is among the first n if fewer than n of its key come before it."""
    names = plan.input.schema.names
    rows = sorted(content(plan.input, data, now).elements(), key=cmp_to_key(in_order(plan, names)))
    numbers: Counter[Row] = Counter()
    found: Bag = Counter()
    for row in rows:
        key = tuple(row[names.index(each)] for each in plan.keys)
        numbers[key] += 1
        if numbers[key] <= plan.count:
            found[row + ((numbers[key],) if plan.rank else ())] += 1
    return found


def in_order(plan: TopN, names: list[str]) -> Callable[[Row, Row], int]:
    def compare(one: Row, other: Row) -> int:
        for key in plan.order:
            a, b = one[names.index(key.column)], other[names.index(key.column)]
            if a is None or b is None:
                if (a is None) != (b is None):
                    return -1 if (a is None) == key.nulls_first else 1
            elif order_key(a) != order_key(b):
                return -1 if (order_key(a) < order_key(b)) != key.descends else 1
        return -1 if row_order(one) < row_order(other) else int(row_order(one) != row_order(other))

    return compare


@node_content.register
def _(plan: nodes.Window, data: oracle.Sources, now: int) -> Bag:
    rows = held(plan.spec, plan.input.schema.names, happened(plan.input, data), now)
    sized = isinstance(plan.spec, (windows.Range, windows.Sliding))
    told = (plan.spec.size,) if plan.quality_column is not None and sized else ()
    return Counter(row + told for row in rows)


@singledispatch
def held(spec: windows.WindowSpec, names: list[str], events: list[Event], now: int) -> list[Row]:
    raise AssertionError(spec)


@held.register
def _(spec: windows.Range, names: list[str], events: list[Event], now: int) -> list[Row]:
    return [row for time, row in events if now - spec.size < time <= now]


@held.register
def _(spec: windows.Now, names: list[str], events: list[Event], now: int) -> list[Row]:
    return [row for time, row in events if time == now]


@held.register
def _(spec: windows.Unbounded, names: list[str], events: list[Event], now: int) -> list[Row]:
    return [row for time, row in events if time <= now]


@held.register
def _(spec: windows.Sliding, names: list[str], events: list[Event], now: int) -> list[Row]:
    begin, end = newest_window(spec, now)
    return [row for time, row in events if begin <= time < end]


def newest_window(spec: windows.Sliding, now: int) -> tuple[int, int]:
    """The last window [begin, end) that has been answered by now: begin is a multiple of the slide."""
    begin = (now + 1 - spec.size - spec.offset) // spec.slide * spec.slide + spec.offset
    return begin, begin + spec.size


@held.register
def _(spec: windows.Rows, names: list[str], events: list[Event], now: int) -> list[Row]:
    partitions: dict[Row, list[Row]] = {}
    for time, row in events:
        if time <= now:
            partitions.setdefault(tuple(row[names.index(key)] for key in spec.keys), []).append(row)
    return [row for rows in partitions.values() for row in rows[-spec.count :]]


@held.register
def _(spec: windows.Upserts, names: list[str], events: list[Event], now: int) -> list[Row]:
    newest = {tuple(row[names.index(k)] for k in spec.keys): row for time, row in events if time <= now}
    return [row for row in newest.values() if row[names.index(spec.deletes)] is not True]


@held.register
def _(spec: windows.SlidingRows, names: list[str], events: list[Event], now: int) -> list[Row]:
    partitions: dict[Row, list[Row]] = {}
    for time, row in events:
        if time <= now:
            partitions.setdefault(tuple(row[names.index(key)] for key in spec.keys), []).append(row)
    whole = [rows[: len(rows) // spec.slide * spec.slide] for rows in partitions.values()]
    return [row for rows in whole for row in rows[-spec.count :]]


def happened(plan: Plan, data: oracle.Sources) -> list[Event]:
    """The rows of a stream plan in the order in which they are taken."""
    events = oracle.stream(plan, data)
    return events if keeps_arrival_order(plan) else sorted(events, key=lambda e: (e[0], row_order(e[1])))


def groups(plan: nodes.Aggregate, rows: list[Row]) -> Bag:
    below = plan.input.schema
    names = below.names
    of = {
        key: [r for r in rows if keyed(plan, names, r) == key]
        for key in {keyed(plan, names, r) for r in rows}
    }
    return Counter({key + tuple(folded(call, below, of[key]) for call in plan.calls): 1 for key in of})


def keyed(plan: nodes.Aggregate, names: list[str], row: Row) -> Row:
    return tuple(row[names.index(key)] for key in plan.keys)


def folded(call: nodes.AggregateCall, below: Schema, rows: list[Row]) -> object:
    if isinstance(call, UserCall):
        return fold_user(call, below, rows)
    if call.column is None:
        return len(rows)
    return fold(call.function, [row[below.names.index(call.column)] for row in rows])


def is_pointwise(plan: Plan) -> bool:
    """Whether a relation is decided at each instant by what is valid then: no grains, no first or last."""
    if isinstance(plan, nodes.Window):
        return True
    if isinstance(plan, SessionAggregate):
        return False
    calls = plan.calls if isinstance(plan, nodes.Aggregate) else ()
    placed = type(plan) is nodes.Aggregate and any(call.minds_order for call in calls)
    below = () if isinstance(plan, nodes.SlidingAggregate) else plan.inputs
    return not placed and not isinstance(plan, nodes.Granularity) and all(map(is_pointwise, below))


@given(st.data())
def test_a_relation_is_at_each_instant_what_algebra_gives_there(draw: st.DataObject) -> None:
    plan = draw.draw(plans.relations())
    assume(is_pointwise(plan))
    read = [*plans.sources_of(plan), *plans.tables_of(plan)]
    sources = sorted(read, key=lambda source: source.name)
    data = {source.name: draw.draw(schemas.rows(source.columns, 12)) for source in sources}
    relation = oracle.relation(plan, data)
    for now in INSTANTS:
        assert relation.at(now) == content(plan, data, now), now


def test_every_node_of_a_plan_has_a_meaning() -> None:
    abstract = {
        nodes.Plan,
        nodes.Unary,
        nodes.Pairing,
        nodes.ToStream,
        nodes.Inlet,
    }  # an inlet means what runs elsewhere
    declared = {each for each in vars(nodes).values() if isinstance(each, type) and issubclass(each, Plan)}
    assert declared - abstract <= set(oracle.MEANINGS)
