"""Random plans that are well typed, have a determined answer and end as a stream (hypothesis strategies).

Each function below draws one kind of node over inputs that it draws; `depth` is how many nodes may still be
stacked. The simplest choice comes first everywhere, so that failures shrink to small plans.

What is left out on purpose: `first`, `last` and Granularity where `tests.strategies.legal` says that the
answer is not determined, and deviations anywhere but at the top, because their last digits may differ between
engines and would then decide whether rows are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from hypothesis import strategies as st

from headrace.expressions import Expression, Literal, col
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import AggregateCall, Plan, Source, Table
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.over import Over, RangeFrame, RowsFrame
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.schema import Schema
from tests.strategies.legal import ends_are_known, is_finite, joins, starts_are_known, ticks_of
from tests.strategies.schemas import (
    BOOL,
    FLOAT,
    INT,
    Rows,
    collections,
    is_exact,
    literals,
    names_of,
    predicates,
    rows,
    scalars,
    schemas,
)
from tests.strategies.sequence_plans import sequence_of
from tests.strategies.user_aggregates import calls_on

Sources = tuple[Source, ...]
Drawing = Callable[[st.DrawFn, Sources, int], Plan]

SUMMED: Final = ("sum", "avg")
COMPARED: Final = ("min", "max", "count", "count_distinct")
PLACED: Final = ("first", "last")
BOUNDS: Final = ("w_start", "w_end")
DEVIATIONS: Final = ("variance", "var_pop", "stddev", "stddev_pop")


@dataclass(frozen=True)
class Case:
    """A query, and the rows of each of its streams in order of time, and of its tables in any order.

    Where a stream holds the time of its rows in a column, that column must agree: an engine rejects the rows
    in which it does not, so that a generator which forgot it (`stamped`) would look like a wrong answer.
    """

    plan: Plan
    sources: dict[str, Rows]

    def __post_init__(self) -> None:
        stamps = [(source.name, source.stamp) for source in sources_of(self.plan) if source.stamp is not None]
        for name, column in stamps:
            wrong = [row for time, row in self.sources[name] if row[column] != time]
            if wrong:
                raise ValueError(f"{name}.{column} does not hold the time of {wrong[0]}")


@st.composite
def cases(draw: st.DrawFn, depth: int = 4) -> Case:
    """A random query with data; fewer rows where joins would multiply them."""
    plan = draw(plans(depth))
    most = 40 if joins(plan) < 2 else 10
    columns = {leaf.name: leaf.columns for leaf in sources_of(plan)}
    columns |= {leaf.name: leaf.columns for leaf in tables_of(plan)}
    drawn = {name: draw(rows(columns[name], most)) for name in sorted(columns)}
    return Case(plan, stamped(plan, drawn))


def stamped(plan: Plan, drawn: dict[str, Rows]) -> dict[str, Rows]:
    """The rows of each stream with their time in the column that is to hold it."""
    columns = {source.name: source.stamp for source in sources_of(plan) if source.stamp is not None}
    filled = {name: [(time, {**row, at: time}) for time, row in drawn[name]] for name, at in columns.items()}
    return drawn | filled


@st.composite
def plans(draw: st.DrawFn, depth: int = 4) -> Plan:
    """A stream plan over one to three sources."""
    return draw(st.sampled_from(TOPS))(draw, draw(source_lists()), depth)


@st.composite
def relations(draw: st.DrawFn, depth: int = 3) -> Plan:
    """A relation plan over one to three sources."""
    return _relation(draw, draw(source_lists()), depth)


@st.composite
def source_lists(draw: st.DrawFn) -> Sources:
    """One to three sources, of one schema or of several; some hold the time of each row in a column."""
    found = draw(st.lists(schemas(), min_size=1, max_size=3))
    same, stamped = draw(st.booleans()), draw(st.booleans())
    columns = [found[0] if same else schema for schema in found]
    stamps = [next(iter(names_of(each, INT)), None) if stamped else None for each in columns]
    return tuple(
        Source(f"s{i}", each, stamp=stamp)
        for i, (each, stamp) in enumerate(zip(columns, stamps, strict=True))
    )


def sources_of(plan: Plan) -> set[Source]:
    """The sources that a plan reads."""
    return {plan} if isinstance(plan, Source) else set[Source]().union(*map(sources_of, plan.inputs))


def tables_of(plan: Plan) -> set[Table]:
    """The tables that a plan reads."""
    return {plan} if isinstance(plan, Table) else set[Table]().union(*map(tables_of, plan.inputs))


# ---------------------------------------------------------------------------------- streams, relations


def _stream(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    choices = [_source, *(STREAMS if depth >= 1 else ()), *(TO_STREAMS if depth >= 2 else ())]
    return draw(st.sampled_from(choices))(draw, sources, depth)


def _relation(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    choices = RELATIONS if depth >= 2 else WINDOWED
    return draw(st.sampled_from(choices))(draw, sources, depth)


def _source(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    return draw(st.sampled_from(sources))


# ------------------------------------------------------------------------------------------ row by row


def _select(below: Drawing) -> Drawing:
    def drawing(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
        plan = below(draw, sources, depth - 1)
        return nodes.Select(plan, draw(predicates(plan.schema)))

    return drawing


def _project(below: Drawing) -> Drawing:
    def drawing(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
        plan = below(draw, sources, depth - 1)
        return nodes.Project(plan, _named(draw(st.lists(scalars(plan.schema), min_size=1, max_size=3))))

    return drawing


def _unnest(below: Drawing) -> Drawing:
    def drawing(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
        plan = below(draw, sources, depth - 1)
        operand, parts = draw(collections(plan.schema))
        count = len(plan.schema)
        names = tuple(f"u{count + i}" for i in range(parts))
        ordinal = draw(st.sampled_from([None, f"n{count}"]))
        return Unnest(plan, operand, names, ordinal, draw(st.booleans()))

    return drawing


def _named(columns: list[tuple[str, Expression]]) -> tuple[tuple[str, Expression], ...]:
    """The columns under names of which each occurs once."""
    named: dict[str, Expression] = {}
    for name, expression in columns:
        named[name if name not in named else f"{name}{len(named)}"] = expression
    return tuple(named.items())


def _union(below: Drawing) -> Drawing:
    def drawing(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
        first = below(draw, sources, depth - 1)
        others = [below(draw, sources, depth - 1) for _ in range(draw(st.integers(1, 2)))]
        return nodes.Union((first, *(_conform(draw, other, first.schema) for other in others)))

    return drawing


def _conform(draw: st.DrawFn, plan: Plan, schema: Schema) -> Plan:
    """`plan` with the columns of `schema`: its own where it has such ones, or else constants."""
    if plan.schema.equals(schema):
        return plan
    return nodes.Project(plan, tuple((field.name, _source_of(draw, field, plan.schema)) for field in schema))


def _source_of(draw: st.DrawFn, field: Schema, below: Schema) -> Expression:
    fitting = [name for name in names_of(below, field.type) if is_exact(name) or not is_exact(field.name)]
    fitting.sort(key=lambda name: name != field.name)
    return draw(st.sampled_from([col(name) for name in fitting]) if fitting else literals(field.type))


# --------------------------------------------------------------------------------------------- windows


def slidings(longest: int, slowest: int) -> st.SearchStrategy[windows.Sliding]:
    """Windows of any range, slide and offset: with gaps, and ranges that are not multiples of the slide."""
    return st.builds(
        lambda size, slide, offset: windows.Sliding(size, slide, offset % slide),
        st.integers(1, longest),
        st.integers(1, slowest),
        st.integers(0, 1),
    )


def _sliding(draw: st.DrawFn) -> windows.Sliding:
    return draw(slidings(9, 5))


def _spec(draw: st.DrawFn, schema: Schema) -> windows.WindowSpec:
    kind = draw(st.sampled_from(["time", "time", "rows", "partition"]))
    if kind == "time":
        return _time_spec(draw)
    count, keys = draw(st.integers(1, 4)), tuple(draw(_keys(schema, 1))) if kind == "partition" else ()
    conditions = names_of(schema, BOOL) if keys and count == 1 else []
    if conditions and draw(st.booleans()):
        return windows.Upserts(1, keys, deletes=draw(st.sampled_from(conditions)))
    slide = draw(st.integers(1, 3))
    if slide > 1:
        return windows.SlidingRows(count, keys, slide=slide)
    return windows.Rows(count, keys, draw(st.none() | st.integers(1, count)))


def _time_spec(draw: st.DrawFn) -> windows.WindowSpec:
    kind = draw(st.sampled_from(["range", "range", "sliding", "now", "unbounded"]))
    if kind == "sliding":
        spec = _sliding(draw)
        steps = draw(st.none() | st.integers(0, (spec.size - 1) // spec.slide))
        return replace(spec, least=None if steps is None else spec.size - steps * spec.slide)
    if kind == "range":
        size = draw(st.integers(1, 9))
        return windows.Range(size, draw(st.none() | st.integers(1, size)))
    return windows.Now() if kind == "now" else windows.Unbounded()


def _window(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _stream(draw, sources, depth - 1)
    return _telling(draw, nodes.Window(plan, _spec(draw, plan.schema)))


def _telling(draw: st.DrawFn, plan: nodes.Window | nodes.Granularity) -> Plan:
    """Now and then with a column that tells the quality."""
    has_size = isinstance(plan, nodes.Granularity) or isinstance(plan.spec, (windows.Range, windows.Sliding))
    if not has_size or draw(st.integers(0, 3)):
        return plan
    taken = set(plan.schema.names)
    return replace(plan, quality_column=next(n for i in range(9) if (n := f"quality{i}") not in taken))


def _table(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    """A table with the columns of a stream, so that they may be joined and united."""
    like = draw(st.sampled_from(sources))
    return Table(f"t_{like.name}", like.columns)


def _without_tables(plan: Plan) -> Plan:
    """Panes number their windows in half the domain of time: the beginning of a table is beyond it."""
    if isinstance(plan, Table):
        return nodes.Window(Source(plan.name.removeprefix("t_"), plan.columns), windows.Unbounded())
    return plan.with_inputs(tuple(map(_without_tables, plan.inputs)))


def _timed(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    """A relation whose rows have known ends."""
    if depth >= 2 and draw(st.booleans()):
        plan = _relation(draw, sources, depth)
        if ends_are_known(plan):
            return plan
    return _telling(draw, nodes.Window(_stream(draw, sources, depth - 1), _time_spec(draw)))


def _granularity(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    grain = draw(st.integers(1, 5))
    coarsest = draw(st.none() | st.integers(grain, 7))
    return _telling(draw, nodes.Granularity(_timed(draw, sources, depth - 1), grain, coarsest))


# ----------------------------------------------------------------------------------------------- pairs


def _join(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    left = _relation(draw, sources, depth - 1)
    shared = draw(st.sampled_from([False] * 5 + [True]))
    right = left if shared else _relation(draw, sources, min(depth - 1, 2))
    right = _disjoint(right, set(left.schema.names))
    keys = _join_keys(draw, left.schema, right.schema)
    plan = nodes.joined(left, right, keys)
    return replace(plan, residual=draw(predicates(plan.schema))) if draw(st.booleans()) else plan


def _outer_join(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    """A join of a random kind, on what a random inner join is on."""
    inner = _join(draw, sources, depth)
    assert isinstance(inner, nodes.Join)
    parts = {field.name: getattr(inner, field.name) for field in fields(inner)}
    return OuterJoin(**parts, kind=draw(st.sampled_from([kind for kind in JoinKind if kind.followed])))


def _disjoint(plan: Plan, taken: set[str]) -> Plan:
    """`plan` with its columns renamed so that none of them is taken."""
    if not taken & set(plan.schema.names):
        return plan
    prefix = "r"
    while taken & {prefix + name for name in plan.schema.names}:
        prefix += "r"
    return nodes.Project(plan, tuple((prefix + name, col(name)) for name in plan.schema.names))


def _join_keys(draw: st.DrawFn, left: Schema, right: Schema) -> list[nodes.Equality[str]]:
    pairs = [(one.name, name) for one in left for name in names_of(right, one.type)]
    if not pairs:
        return []
    count = min(draw(st.sampled_from([1, 1, 2, 0])), len(pairs))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=count, max_size=count, unique=True))
    return [nodes.Equality(a, b, draw(st.booleans())) for a, b in chosen]


def _sequence(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    streams: list[Plan] = []
    for _ in range(draw(st.sampled_from([2, 2, 2, 3]))):
        taken = {name for stream in streams for name in stream.schema.names}
        streams.append(_disjoint(_stream(draw, sources, min(depth - 1, 1)), taken))
    return sequence_of(draw, tuple(streams))


def _except(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    left = _relation(draw, sources, depth - 1)
    right = _conform(draw, _relation(draw, sources, depth - 1), left.schema)
    return nodes.Except(left, right, draw(st.booleans()))


# ---------------------------------------------------------------------------------------------- groups


def _keys(schema: Schema, least: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(schema.names), min_size=least, max_size=2, unique=True)


def _calls(draw: st.DrawFn, schema: Schema, functions: tuple[str, ...]) -> tuple[AggregateCall, ...]:
    """One to three aggregates, each over a column that it takes."""
    legal = [AggregateCall(f, f, name) for f in functions for name in _columns_for(f, schema)]
    legal += calls_on(schema, ordered="first" in functions)
    drawn = draw(st.lists(st.sampled_from([AggregateCall("count", "count"), *legal]), min_size=1, max_size=3))
    return tuple(replace(call, name=_call_name(i, call)) for i, call in enumerate(drawn))


def _call_name(index: int, call: AggregateCall) -> str:
    """A name that says whether sums over the result are exact (`is_exact`)."""
    exact = all(map(is_exact, call.columns))
    return f"{call.function}_{index}" if exact else f"{call.function}_{index}_avg"


def _columns_for(function: str, schema: Schema) -> list[str]:
    if function in COMPARED + PLACED:
        return list(schema.names)
    types = (INT, FLOAT, BOOL) if function == "sum" else (INT, FLOAT)
    return [name for name in names_of(schema, *types) if is_exact(name)]


def _grouping(draw: st.DrawFn, schema: Schema, calls: tuple[AggregateCall, ...]) -> tuple[str, ...]:
    """Up to two keys whose names no aggregate has taken."""
    taken = {call.name for call in calls}
    return tuple(key for key in draw(_keys(schema)) if key not in taken)


def _aggregate_of(draw: st.DrawFn, plan: Plan, more: tuple[str, ...] = ()) -> Plan:
    functions = COMPARED + SUMMED + more + (PLACED if starts_are_known(plan) else ())
    calls = _calls(draw, plan.schema, functions)
    return nodes.Aggregate(plan, _grouping(draw, plan.schema, calls), calls)


def _sliding_of(draw: st.DrawFn, plan: Plan, more: tuple[str, ...] = ()) -> Plan:
    plan = _without_tables(plan)
    calls = _calls(draw, plan.schema, COMPARED + SUMMED + PLACED + more)
    keys = _grouping(draw, plan.schema, calls)
    bounds = BOUNDS if draw(st.booleans()) and not set(BOUNDS) & set(keys) else None
    return nodes.SlidingAggregate(plan, keys, calls, _sliding(draw), bounds)


def _session_aggregate(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _stream(draw, sources, depth - 1)
    calls = _calls(draw, plan.schema, COMPARED + SUMMED + PLACED)
    keys = _grouping(draw, plan.schema, calls)
    bounds = BOUNDS if draw(st.booleans()) and not set(BOUNDS) & set(keys) else None
    partition = draw(st.sampled_from([None, keys[:1], ()]))
    return SessionAggregate(plan, keys, calls, draw(st.integers(1, 5)), bounds, partition)


def _lag(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _stream(draw, sources, depth - 1)
    taken = set(plan.schema.names)
    columns = draw(st.lists(st.sampled_from(plan.schema.names), min_size=1, max_size=2))
    calls = []
    for i, column in enumerate(columns):
        value = draw(st.none() | literals(plan.schema.field(column).type))
        default = value if isinstance(value, Literal) else None
        name = f"lag{i}" if is_exact(column) else f"lag{i}_avg"
        calls.append(LagCall(name, column, draw(st.integers(1, 3)), default))
    if taken & {call.name for call in calls}:
        return plan
    return Lag(plan, tuple(draw(_keys(plan.schema))), tuple(calls))


def _over(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _stream(draw, sources, depth - 1)
    calls = _calls(draw, plan.schema, COMPARED + SUMMED + PLACED)
    if {call.name for call in calls} & set(plan.schema.names):
        return plan
    frame = draw(st.sampled_from([RowsFrame, RangeFrame]))(draw(st.none() | st.integers(0, 5)))
    return Over(plan, tuple(draw(_keys(plan.schema))), frame, calls)


def _distinct_on(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _stream(draw, sources, depth - 1)
    return DistinctOn(plan, tuple(draw(_keys(plan.schema))), draw(st.none() | st.integers(1, 9)))


def _aggregate(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    return _aggregate_of(draw, _relation(draw, sources, depth - 1))


def _sliding_aggregate(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    return _sliding_of(draw, _stream(draw, sources, depth - 1))


def _distinct(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    return nodes.Distinct(_relation(draw, sources, depth - 1))


@st.composite
def sort_keys(draw: st.DrawFn, schema: Schema) -> tuple[SortKey, ...]:
    """Up to two columns to order by, in any direction, nulls anywhere."""
    names = draw(_keys(schema))
    return tuple(SortKey(name, draw(st.booleans()), draw(st.booleans())) for name in names)


def _top_n(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _relation(draw, sources, depth - 1)
    rank = "rank" if "rank" not in plan.schema.names and draw(st.booleans()) else None
    keys, order = tuple(draw(_keys(plan.schema))), draw(sort_keys(plan.schema))
    return TopN(plan, keys, order, draw(st.integers(1, 4)), rank)


# ----------------------------------------------------------------------------------- back to a stream


def _to_stream(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    plan = _relation(draw, sources, depth - 1)
    kinds = ["i", "d", *(["r"] if is_finite(plan) else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "r":
        return _rstream(draw, plan)
    if kind == "d" and "op" not in plan.schema.names and draw(st.booleans()):
        return Changelog(plan, "op", tuple(draw(_keys(plan.schema))))
    return nodes.IStream(plan) if kind == "i" else nodes.DStream(plan)


def _rstream(draw: st.DrawFn, plan: Plan) -> Plan:
    others = [windows.Ticks(1), windows.Ticks(2), windows.Ticks(3), windows.Ticks(3, 2)]
    ticks = draw(st.sampled_from([*sorted(ticks_of(plan)), *others]))
    return nodes.RStream(plan, ticks.slide, ticks.phase)


def _deviations(draw: st.DrawFn, sources: Sources, depth: int) -> Plan:
    """Deviations under an RStream, where no row is netted against another."""
    if draw(st.booleans()):
        return _rstream(draw, _sliding_of(draw, _stream(draw, sources, depth - 2), DEVIATIONS))
    plan = _relation(draw, sources, depth - 2)
    if not is_finite(plan):
        return nodes.IStream(_aggregate_of(draw, plan))
    return _rstream(draw, _aggregate_of(draw, plan, DEVIATIONS))


ROWWISE_STREAMS: Final = (_select(_stream), _project(_stream), _unnest(_stream), _union(_stream))
STREAMS: Final[tuple[Drawing, ...]] = (*ROWWISE_STREAMS, _sequence, _lag, _over, _distinct_on)
TO_STREAMS: Final[tuple[Drawing, ...]] = (_to_stream, _to_stream)
WINDOWED: Final[tuple[Drawing, ...]] = (_window, _window, _window, _sliding_aggregate, _table)
RELATIONS: Final[tuple[Drawing, ...]] = (
    _window,
    _aggregate,
    _join,
    _distinct,
    _top_n,
    _except,
    _granularity,
    _sliding_aggregate,
    _session_aggregate,
    _select(_relation),
    _project(_relation),
    _unnest(_relation),
    _union(_relation),
    _join,
    _aggregate,
    _table,
    _outer_join,
)
TOPS: Final[tuple[Drawing, ...]] = (*[_to_stream] * 6, _deviations, _sequence, *ROWWISE_STREAMS)
