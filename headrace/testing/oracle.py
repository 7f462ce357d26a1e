"""The meaning of plans, computed the naive way: the definition that every engine path must match.

A relation is a list of rows with validity intervals. Operators that do not work on single rows (groups,
distinct, except, i/d-streams) are recomputed from scratch at every *elementary instant*: the starts and ends
of the input, between which nothing changes. Cost: rows × instants. No code is shared with the operators.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from headrace.expressions import Expression, evaluator
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Granularity, Plan, Window
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.over import Over, RowsFrame
from headrace.plan.nodes.sequence import Sequence as SequencePlan
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import Schema
from headrace.testing.compare import Bag, Event, Row, canonical_row, order_key, row_order
from headrace.testing.folds import fold, fold_user
from headrace.testing.patterns import pattern_matches
from headrace.testing.sequences import matches
from headrace.time.timestamp import BEGINNING, MAX_TIME, plus

# The meaning of a plan whose windows and granularities have changed (Cammert et al., §4).


Histories = Mapping[Plan, Sequence[tuple[int, int]]]
"""By node of the plan, pairs (t, value): rows with time ≥ t get the value, until the next pair."""


@dataclass(frozen=True)
class Resized(Window):
    """A window with the size that its history has at the time of the row."""

    history: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Regrained(Granularity):
    """Validity rounded to the grain that the history has at the row's start."""

    history: tuple[tuple[int, int], ...] = ()


def under(plan: Plan, histories: Histories) -> Plan:
    """`plan` with its histories as part of the nodes."""
    inputs = tuple(under(below, histories) for below in plan.inputs)
    made = plan.with_inputs(inputs) if inputs else plan
    if plan not in histories:
        return made
    parts = {field.name: getattr(made, field.name) for field in fields(made)}
    kind = Resized if isinstance(made, Window) else Regrained
    return kind(**parts, history=tuple(histories[plan]))


def value_at(history: Sequence[tuple[int, int]], time: int) -> int:
    """The value for a row of this time."""
    return [value for since, value in history if since <= time][-1]


Sources = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
"""By stream, its rows with their times, in order of delivery; for tables the times do not matter."""


class Reloaded(tuple[Any, ...]):
    """A table that was reloaded: its rows from each instant on, the first ones since the beginning."""

    versions: tuple[tuple[int, Sequence[Mapping[str, Any]]], ...]

    @staticmethod
    def of(versions: Sequence[tuple[int, Sequence[Mapping[str, Any]]]]) -> Reloaded:
        """The versions in order, each with the instant from which it holds; the first holds always."""
        made = Reloaded()
        made.versions = ((BEGINNING, versions[0][1]), *versions[1:])
        return made


class Element(NamedTuple):
    """A row valid in [start, end). On a stream `end` equals `start`: the row only happens."""

    row: Row
    start: int
    end: int


@dataclass(frozen=True)
class Relation:
    """The meaning of a relation plan."""

    elements: tuple[Element, ...]

    def at(self, instant: int) -> Bag:
        """The bag of rows valid at `instant`."""
        return Counter(e.row for e in self.elements if e.start <= instant < e.end)

    def changes(self) -> list[tuple[int, Bag, Bag]]:
        """Every instant at which the content changes, with the rows removed and the rows added."""
        steps = _steps(_snapshots(self.elements))
        return [(instant, gone, come) for instant, gone, come in steps if gone or come]

    @property
    def instants(self) -> list[int]:
        """The instants at which the content changes."""
        return [instant for instant, _, _ in self.changes()]


def stream(plan: Plan, sources: Sources, histories: Histories | None = None) -> list[Event]:
    """The result of a stream plan in order of time; simultaneous rows as `plan.analysis.ordering` says.

    `histories`: the values of its windows and granularities over time; without them they keep the first one.
    """
    assert not plan.is_relation, plan
    plan = under(plan, histories or {})
    return [(e.start, e.row) for e in _ordered(plan, sources)]


def relation(plan: Plan, sources: Sources) -> Relation:
    """The result of a relation plan."""
    assert plan.is_relation, plan
    return Relation(tuple(_ordered(plan, sources)))


def _meaning(plan: Plan, sources: Sources) -> list[Element]:
    """The elements of a plan's answer, by the definition of its top node."""
    return MEANINGS[type(plan)](plan, sources)


def _ordered(plan: Plan, sources: Sources) -> list[Element]:
    """The elements by time; simultaneous ones in the order of their source, or by content."""
    elements = _meaning(plan, sources)
    if keeps_arrival_order(plan):
        return sorted(elements, key=lambda e: e.start)
    return sorted(elements, key=lambda e: (e.start, row_order(e.row)))


# ------------------------------------------------------------------------------------------- row by row


def _source(plan: nodes.Source, sources: Sources) -> list[Element]:
    names = plan.schema.names
    rows = [(time, canonical_row(row.get(name) for name in names)) for time, row in sources[plan.name]]
    return [Element(row, time, time) for time, row in sorted(rows, key=lambda each: each[0])]


def _table(plan: nodes.Table, sources: Sources) -> list[Element]:
    given = sources[plan.name]
    versions = given.versions if isinstance(given, Reloaded) else ((BEGINNING, [row for _, row in given]),)
    ends = [since for since, _ in versions[1:]] + [MAX_TIME]
    return [
        Element(canonical_row(row.get(name) for name in plan.schema.names), since, end)
        for (since, rows), end in zip(versions, ends, strict=True)
        for row in rows
        if since < end
    ]


def _select(plan: nodes.Select, sources: Sources) -> list[Element]:
    passes = _function(plan.predicate, plan.schema)
    return [e for e in _meaning(plan.input, sources) if passes(e.row) is True]


def _project(plan: nodes.Project, sources: Sources) -> list[Element]:
    compute = [_function(expression, plan.input.schema) for _, expression in plan.columns]
    elements = _meaning(plan.input, sources)
    return [e._replace(row=canonical_row(column(e.row) for column in compute)) for e in elements]


def _unnest(plan: Unnest, sources: Sources) -> list[Element]:
    """A copy of the row for each element, with its parts; if outer, one without parts for no element."""
    compute = _function(plan.operand, plan.input.schema)
    found = []
    for each in _meaning(plan.input, sources):
        elements: list[Any] = list(compute(each.row) or ())
        parts = [_parts(plan, element) for element in elements]
        if plan.outer and not parts:
            parts = [(None,) * len(plan.names)]
        for number, part in enumerate(parts, 1):
            ordinal = () if plan.ordinal is None else (number if elements else None,)
            found.append(each._replace(row=canonical_row((*each.row, *part, *ordinal))))
    return found


def _parts(plan: Unnest, element: Any) -> tuple[Any, ...]:
    """The new columns of one element."""
    if not plan.takes_apart:
        return (element,)
    if element is None:
        return (None,) * len(plan.names)
    return tuple(element.values()) if isinstance(element, dict) else tuple(element)


def _union(plan: nodes.Union, sources: Sources) -> list[Element]:
    return [e for branch in plan.branches for e in _meaning(branch, sources)]


def _granularity(plan: nodes.Granularity, sources: Sources) -> list[Element]:
    """Starts rounded up and ends rounded down to multiples of the grain."""
    return _lasting(_rounded(plan, e, plan.grain) for e in _meaning(plan.input, sources))


def _rounded(plan: nodes.Granularity, e: Element, grain: int) -> Element:
    """The row, valid between two instants that are a multiple of the grain away from those of a report."""
    first = plan.ticks.phase - 1
    end = e.end if e.end == MAX_TIME else (e.end - first) // grain * grain + first
    return Element(_told(plan, e.row, grain), _ceil(e.start - first, grain) * grain + first, end)


def _told(plan: nodes.Window | nodes.Granularity, row: Row, value: int) -> Row:
    """The row, with its window size or grain as a column if the plan asks for it."""
    return row if plan.quality_column is None else (*row, value)


def _regrained(plan: Regrained, sources: Sources) -> list[Element]:
    """The same, with the grain at the start of each row."""
    below = _meaning(plan.input, sources)
    return _lasting(_rounded(plan, e, value_at(plan.history, e.start)) for e in below)


def _join(plan: nodes.Join, sources: Sources) -> list[Element]:
    """All pairs of rows with equal keys, while both are valid; null equals null only in null-safe keys."""
    lefts = _keyed(plan.left, plan.left_keys, sources)
    rights = _keyed(plan.right, plan.right_keys, sources)
    pairs = [
        Element(left.row + right.row, max(left.start, right.start), min(left.end, right.end))
        for key, left in lefts
        for other, right in rights
        if key == other and None not in [value for i, value in enumerate(key) if i not in plan.null_safe]
    ]
    if plan.residual is None:
        return _lasting(pairs)
    passes = _function(plan.residual, plan.schema)
    return [e for e in _lasting(pairs) if passes(e.row) is True]


def _outer_join(plan: OuterJoin, sources: Sources) -> list[Element]:
    """At each instant, the join of SQL over the rows that are valid then."""
    left, right = _meaning(plan.left, sources), _meaning(plan.right, sources)
    matching = _matching(plan)
    return _intervals(
        (t, _sql_join(plan, matching, _valid(left, t), _valid(right, t))) for t in _instants(left + right)
    )


def _sql_join(plan: OuterJoin, matching: Matching, lefts: list[Row], rights: list[Row]) -> Bag:
    """The answer of SQL for the rows of two tables."""
    pairs = [(i, j) for i, a in enumerate(lefts) for j, b in enumerate(rights) if matching(a, b)]
    of_left, of_right = {i for i, _ in pairs}, {j for _, j in pairs}
    alone = [row for i, row in enumerate(lefts) if i not in of_left]
    if not plan.kind.has_pairs:
        partnered = [row for i, row in enumerate(lefts) if i in of_left]
        return Counter(partnered if plan.kind is JoinKind.SEMI else alone)
    left_nulls, right_nulls = ((None,) * len(each.schema) for each in plan.inputs)
    answer = [lefts[i] + rights[j] for i, j in pairs] + [row + right_nulls for row in alone]
    if plan.kind is JoinKind.FULL:
        answer += [left_nulls + row for j, row in enumerate(rights) if j not in of_right]
    return Counter(answer)


Matching = Callable[[Row, Row], bool]


def _matching(plan: nodes.Pairing) -> Matching:
    """Whether a left and a right row are partners: equal on the keys, and the residual is true."""
    passes = None if plan.residual is None else _function(plan.residual, plan.pair_schema)

    def matches(left: Row, right: Row) -> bool:
        key, other = (
            _pick(plan.left.schema, plan.left_keys, left),
            _pick(plan.right.schema, plan.right_keys, right),
        )
        strict = [value for i, value in enumerate(key) if i not in plan.null_safe]
        return key == other and None not in strict and (passes is None or passes(left + right) is True)

    return matches


def _sequence(plan: SequencePlan, sources: Sources) -> list[Element]:
    rows = [[(e.start, e.row) for e in _ordered(stream, sources)] for stream in plan.streams]
    return [Element(row, time, time) for time, row in matches(plan, rows)]


def _keyed(plan: Plan, keys: Sequence[str], sources: Sources) -> list[tuple[Row, Element]]:
    return [(_pick(plan.schema, keys, e.row), e) for e in _meaning(plan, sources)]


def _function(expression: Expression, schema: Schema) -> Callable[[Row], Any]:
    """The expression as a function of a row."""
    value, names = evaluator(expression, schema), schema.names
    return lambda row: value(dict(zip(names, row, strict=True)))


def _pick(schema: Schema, names: Sequence[str], row: Row) -> Row:
    """The values of the named columns."""
    return tuple(row[schema.names.index(name)] for name in names)


def _lasting(elements: Iterable[Element]) -> list[Element]:
    """The elements that are valid for at least one instant."""
    return [e for e in elements if e.start < e.end]


def _ceil(number: int, step: int) -> int:
    """Division, rounded up."""
    return -(-number // step)


# ---------------------------------------------------------------------------------------------- windows


def _window(plan: nodes.Window, sources: Sources) -> list[Element]:
    happened = _ordered(plan.input, sources)
    lasting = _lasting(WINDOWS[type(plan.spec)](plan.spec, plan.schema, happened))
    if not isinstance(plan.spec, (windows.Range, windows.Sliding)):
        return lasting
    return [e._replace(row=_told(plan, e.row, plan.spec.size)) for e in lasting]


def _resized(plan: Resized, sources: Sources) -> list[Element]:
    """The window with the size at the time of each row, or with the number of rows at that time."""
    happened = _ordered(plan.input, sources)
    sizes = [value_at(plan.history, e.start) for e in happened]
    if isinstance(plan.spec, windows.Rows):
        return _lasting(_resized_rows(plan.spec, plan.schema, happened, sizes))
    assert isinstance(plan.spec, (windows.Range, windows.Sliding))
    meaning = WINDOWS[type(plan.spec)]
    return _lasting(
        each._replace(row=_told(plan, each.row, size))
        for e, size in zip(happened, sizes, strict=True)
        for each in meaning(replace(plan.spec, size=size, least=None), plan.schema, [e])
    )


def _resized_rows(
    spec: windows.Rows, schema: Schema, happened: list[Element], counts: list[int]
) -> list[Element]:
    """Each row is valid until a row of its partition comes with so many that it is not among the newest."""
    keys = [_pick(schema, spec.keys, e.row) for e in happened]
    found = []
    for i, e in enumerate(happened):
        newer = [j for j in range(i + 1, len(happened)) if keys[j] == keys[i]]
        ends = [happened[j].start for n, j in enumerate(newer, 1) if n >= counts[j]]
        found.append(e._replace(end=min(ends, default=MAX_TIME)))
    return found


def _range(spec: windows.Range, _: Schema, happened: list[Element]) -> list[Element]:
    return [Element(e.row, e.start, plus(e.start, spec.size)) for e in happened]


def _now(_: windows.Now, __: Schema, happened: list[Element]) -> list[Element]:
    return [Element(e.row, e.start, e.start + 1) for e in happened]


def _unbounded(_: windows.Unbounded, __: Schema, happened: list[Element]) -> list[Element]:
    return [Element(e.row, e.start, MAX_TIME) for e in happened]


def _sliding(spec: windows.Sliding, _: Schema, happened: list[Element]) -> list[Element]:
    """Valid from the report of the first window with the row to the report of the first without it."""
    holding = [(e.row, _starts_of(spec, e.start)) for e in happened]
    last = spec.size - 1
    return [
        Element(row, starts[0] + last, starts[-1] + spec.slide + last) for row, starts in holding if starts
    ]


def _starts_of(spec: windows.Sliding, time: int) -> range:
    """The starts, multiples of the slide, of the windows with this time: start ≤ time < start + size."""
    first = _ceil(time - spec.size + 1 - spec.offset, spec.slide) * spec.slide + spec.offset
    return range(first, time + 1, spec.slide)


def _rows(spec: windows.Rows, schema: Schema, happened: list[Element]) -> list[Element]:
    """Each row is valid until `count` newer rows of its partition have come; in the order of all rows."""
    partitions: dict[Row, list[int]] = defaultdict(list)
    for place, e in enumerate(happened):
        partitions[_pick(schema, spec.keys, e.row)].append(place)
    found = list(happened)
    for places in partitions.values():
        for place, e in zip(places, _newest(spec.count, [happened[each] for each in places]), strict=True):
            found[place] = e
    return found


def _sliding_rows(spec: windows.SlidingRows, schema: Schema, happened: list[Element]) -> list[Element]:
    """As of each m-th row of a partition, its `count` newest rows."""
    partitions: dict[Row, list[Element]] = defaultdict(list)
    for e in happened:
        partitions[_pick(schema, spec.keys, e.row)].append(e)
    return [e for rows in partitions.values() for e in _as_of_slides(spec, rows)]


def _as_of_slides(spec: windows.SlidingRows, rows: list[Element]) -> Iterator[Element]:
    """The rows of one partition, each from the first to the last slide that shows it."""
    slides = [*range(spec.slide, len(rows) + 1, spec.slide)]
    times = {number: rows[number - 1].start for number in slides}
    for i, e in enumerate(rows):
        shown = [number for number in slides if number - spec.count <= i < number]
        if shown:
            yield Element(e.row, times[shown[0]], times.get(shown[-1] + spec.slide, MAX_TIME))


def _upserts(spec: windows.Upserts, schema: Schema, happened: list[Element]) -> list[Element]:
    """The newest row of each key, without the rows that delete."""
    held = _rows(spec, schema, happened)
    return [e for e in held if _pick(schema, [spec.deletes], e.row) != (True,)]


def _newest(count: int, partition: list[Element]) -> list[Element]:
    ends = [e.start for e in partition[count:]] + [MAX_TIME] * count
    return [Element(e.row, e.start, end) for e, end in zip(partition, ends, strict=False)]


# --------------------------------------------------------------------------------- instant by instant


def _instants(elements: Iterable[Element]) -> list[int]:
    """The elementary instants: between two of them, nothing changes."""
    return sorted({time for e in elements for time in (e.start, e.end) if time != MAX_TIME})


def _snapshots(elements: Sequence[Element]) -> list[tuple[int, Bag]]:
    """The bag of valid rows at each instant at which something changes."""
    return [(t, Counter(_valid(elements, t))) for t in _instants(elements)]


def _valid(elements: Sequence[Element], instant: int) -> list[Row]:
    return [e.row for e in elements if e.start <= instant < e.end]


def _steps(snapshots: Iterable[tuple[int, Bag]]) -> Iterator[tuple[int, Bag, Bag]]:
    """At each instant, the bag of rows removed and the bag of rows added."""
    before: Bag = Counter()
    for instant, bag in snapshots:
        yield instant, before - bag, bag - before
        before = bag


def _intervals(snapshots: Iterable[tuple[int, Bag]]) -> list[Element]:
    """The longest intervals with these snapshots, each valid until the next; the oldest copy ends first."""
    since: dict[Row, list[int]] = defaultdict(list)
    ended = []
    for instant, gone, come in _steps(snapshots):
        for row in gone.elements():
            ended.append(Element(row, since[row].pop(0), instant))
        for row in come.elements():
            since[row].append(instant)
    return ended + [Element(row, start, MAX_TIME) for row, starts in since.items() for start in starts]


def _aggregate(plan: nodes.Aggregate, sources: Sources) -> list[Element]:
    """At each instant, the groups of the rows that are valid then."""
    elements = _ordered(plan.input, sources)
    return _intervals((t, Counter(_groups(plan, _valid(elements, t)))) for t in _instants(elements))


def _sliding_aggregate(plan: nodes.SlidingAggregate, sources: Sources) -> list[Element]:
    """The groups of each window, reported at its last instant and valid for one slide."""
    size, slide = plan.window.size, plan.window.slide
    happened = _ordered(plan.input, sources)
    answers = []
    for begin in sorted({start for e in happened for start in _starts_of(plan.window, e.start)}):
        end = begin + size
        bounds = (begin, end) if plan.bounds else ()
        for row in _groups(plan, [e.row for e in happened if begin <= e.start < end]):
            answers.append(Element(row + bounds, end - 1, end + slide - 1))
    return answers


def _session_aggregate(plan: SessionAggregate, sources: Sources) -> list[Element]:
    """A row belongs to the session of the previous row of its group, if the gap is not exceeded."""
    sessions: dict[Row, list[list[Element]]] = defaultdict(list)
    for e in _ordered(plan.input, sources):
        of_group = sessions[_pick(plan.input.schema, plan.partition_keys, e.row)]
        if of_group and e.start - of_group[-1][-1].start <= plan.gap:
            of_group[-1].append(e)
        else:
            of_group.append([e])
    answers = []
    for session in (each for of_group in sessions.values() for each in of_group):
        begin, end = session[0].start, session[-1].start + plan.gap
        for row in _groups(plan, [e.row for e in session]):
            answers.append(Element(row + ((begin, end) if plan.bounds else ()), end - 1, end))
    return answers


def _groups(plan: nodes.Aggregate, rows: list[Row]) -> list[Row]:
    """One row per group: the keys, then each aggregate over the rows of the group in order."""
    below = plan.input.schema
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[_pick(below, plan.keys, row)].append(row)
    return [
        key + canonical_row(_fold(call, below, group) for call in plan.calls) for key, group in groups.items()
    ]


def _fold(call: nodes.AggregateCall, below: Schema, group: list[Row]) -> Any:
    """The result of one aggregate call over a group."""
    if isinstance(call, UserCall):
        return fold_user(call, below, group)
    if call.column is None:
        return len(group)
    index = below.names.index(call.column)
    return fold(call.function, [row[index] for row in group])


def _distinct(plan: nodes.Distinct, sources: Sources) -> list[Element]:
    snapshots = _snapshots(_meaning(plan.input, sources))
    return _intervals((t, Counter(set(bag))) for t, bag in snapshots)


def _lag(plan: Lag, sources: Sources) -> list[Element]:
    """Each row with values of earlier rows of its partition."""
    below = plan.input.schema
    came: dict[Row, list[Row]] = defaultdict(list)
    looked = []
    for e in _ordered(plan.input, sources):
        earlier = came[_pick(below, plan.keys, e.row)]
        looked.append(e._replace(row=e.row + canonical_row(_back(c, below, earlier) for c in plan.calls)))
        earlier.append(e.row)
    return looked


def _back(call: LagCall, below: Schema, earlier: list[Row]) -> Any:
    """The value `offset` rows earlier, or the default."""
    if len(earlier) < call.offset:
        return None if call.default is None else call.default.value
    return earlier[-call.offset][below.names.index(call.column)]


def _match(plan: Match, sources: Sources) -> list[Element]:
    rows = [(e.start, e.row) for e in _ordered(plan.input, sources)]
    return [Element(row, time, time) for time, row in pattern_matches(plan, rows)]


def _distinct_on(plan: DistinctOn, sources: Sources) -> list[Element]:
    """Each row whose key was not kept shortly before."""
    kept: dict[Row, int] = {}
    firsts = []
    for e in _ordered(plan.input, sources):
        key = _pick(plan.schema, plan.keys, e.row)
        if key not in kept or (plan.within is not None and e.start - kept[key] >= plan.within):
            kept[key] = e.start
            firsts.append(e)
    return firsts


def _over(plan: Over, sources: Sources) -> list[Element]:
    """Each row with the aggregates of its frame."""
    below = plan.input.schema
    happened = _ordered(plan.input, sources)
    keys = [_pick(below, plan.keys, e.row) for e in happened]
    answers = []
    for i, e in enumerate(happened):
        partition = [j for j, key in enumerate(keys) if key == keys[i]]
        frame = [each.row for each in _frame(plan, [happened[j] for j in partition], partition.index(i))]
        answers.append(e._replace(row=e.row + canonical_row(_fold(c, below, frame) for c in plan.calls)))
    return answers


def _frame(plan: Over, rows: list[Element], at: int) -> list[Element]:
    """The rows in the frame of one of them: so many before it, or those up to its time."""
    preceding, time = plan.frame.preceding, rows[at].start
    if isinstance(plan.frame, RowsFrame):
        return rows[: at + 1] if preceding is None else rows[max(0, at - preceding) : at + 1]
    return [e for e in rows if e.start <= time and (preceding is None or e.start >= time - preceding)]


def _top_n(plan: TopN, sources: Sources) -> list[Element]:
    """At each instant, the first rows of each key."""
    elements = _meaning(plan.input, sources)
    return _intervals((t, Counter(_firsts(plan, _valid(elements, t)))) for t in _instants(elements))


def _firsts(plan: TopN, rows: list[Row]) -> list[Row]:
    """The first rows of each key, with their rank if the plan asks for it. Sorts by the last key first."""
    below = plan.input.schema
    ordered = sorted(rows, key=row_order)
    for key in reversed(plan.order):
        ordered.sort(key=lambda row, key=key: _sort_value(key, row[below.names.index(key.column)]))  # type: ignore[misc]
    keyed: dict[Row, list[Row]] = defaultdict(list)
    for row in ordered:
        keyed[_pick(below, plan.keys, row)].append(row)
    chosen = [enumerate(group[: plan.count], 1) for group in keyed.values()]
    return [row + ((number,) if plan.rank else ()) for group in chosen for number, row in group]


def _sort_value(key: SortKey, value: Any) -> tuple[Any, ...]:
    """A key that sorts nulls and descending values as the sort key says."""
    if value is None:
        return (0 if key.nulls_first else 2,)
    return (1, _Downward(order_key(value)) if key.descends else order_key(value))


@dataclass(frozen=True)
class _Downward:
    """Reverses the order of a value."""

    key: tuple[Any, ...]

    def __lt__(self, other: _Downward) -> bool:
        return other.key < self.key


def _except(plan: nodes.Except, sources: Sources) -> list[Element]:
    left, right = _meaning(plan.left, sources), _meaning(plan.right, sources)
    difference = _bag_difference if plan.all else _set_difference
    return _intervals((t, difference(_valid(left, t), _valid(right, t))) for t in _instants(left + right))


def _bag_difference(left: list[Row], right: list[Row]) -> Bag:
    return Counter(left) - Counter(right)


def _set_difference(left: list[Row], right: list[Row]) -> Bag:
    return Counter(set(left) - set(right))


# -------------------------------------------------------------------------------------- back to streams


def _istream(plan: nodes.IStream, sources: Sources) -> list[Element]:
    steps = _steps(_snapshots(_meaning(plan.input, sources)))
    return [Element(row, t, t) for t, _, come in steps for row in come.elements()]


def _dstream(plan: nodes.DStream, sources: Sources) -> list[Element]:
    steps = _steps(_snapshots(_meaning(plan.input, sources)))
    return [Element(row, t, t) for t, gone, _ in steps for row in gone.elements()]


def _changelog(plan: Changelog, sources: Sources) -> list[Element]:
    """What went and what came; with keys, a row that replaces another is an update."""
    below = plan.input.schema
    found = []
    for t, gone, come in _steps(_snapshots(_meaning(plan.input, sources))):
        old, new = ({_pick(below, plan.keys, row) for row in rows if plan.keys} for rows in (gone, come))
        for row in gone.elements():
            if _pick(below, plan.keys, row) not in new:
                found.append(Element((*row, "-D"), t, t))
        for row in come.elements():
            replaces = _pick(below, plan.keys, row) in old
            found.append(Element((*row, "+U" if replaces else "+I"), t, t))
    return found


def _rstream(plan: nodes.RStream, sources: Sources) -> list[Element]:
    """Each row once for every tick at which it is valid."""
    elements = _meaning(plan.input, sources)
    if any(e.end == MAX_TIME for e in elements):
        raise ValueError(
            "RSTREAM over rows that never leave has an endless answer, which the oracle cannot list"
        )
    return [Element(e.row, tick, tick) for e in elements for tick in _ticks(plan.ticks, e.start, e.end)]


def _ticks(ticks: windows.Ticks, start: int, end: int) -> range:
    """Every k·slide + phase − 1 in [start, end)."""
    slide, phase = ticks.slide, ticks.phase
    return range(_ceil(start + 1 - phase, slide) * slide + phase - 1, end, slide)


Meaning = Callable[[Any, Sources], list[Element]]

MEANINGS: Final[dict[type[Plan], Meaning]] = {
    nodes.Source: _source,
    nodes.Table: _table,
    nodes.Select: _select,
    nodes.Project: _project,
    nodes.Union: _union,
    nodes.Window: _window,
    nodes.Granularity: _granularity,
    Resized: _resized,
    Regrained: _regrained,
    nodes.Join: _join,
    OuterJoin: _outer_join,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _sliding_aggregate,
    SessionAggregate: _session_aggregate,
    MergingSessions: _session_aggregate,
    EarlySessions: _session_aggregate,
    UnsortedWindows: _sliding_aggregate,
    EarlyWindows: _sliding_aggregate,
    nodes.Distinct: _distinct,
    TopN: _top_n,
    Lag: _lag,
    Over: _over,
    DistinctOn: _distinct_on,
    Unnest: _unnest,
    nodes.Except: _except,
    nodes.IStream: _istream,
    nodes.DStream: _dstream,
    nodes.RStream: _rstream,
    Changelog: _changelog,
    SequencePlan: _sequence,
    Match: _match,
}

WINDOWS: Final[dict[type[Any], Callable[[Any, Schema, list[Element]], list[Element]]]] = {
    windows.Range: _range,
    windows.Sliding: _sliding,
    windows.Rows: _rows,
    windows.SlidingRows: _sliding_rows,
    windows.Upserts: _upserts,
    windows.Now: _now,
    windows.Unbounded: _unbounded,
}
