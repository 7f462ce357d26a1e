"""A plan as text and as a diagram: its operators, and where rows are sorted and wait."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from headrace.drawing import Arc, Box, Diagram, Explanation, Look, Section
from headrace.plan.analysis import ordering
from headrace.plan.analysis.ordering import AdaptiveOrder, Expand, Merge, Order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan, Source, Table
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.latent import Stamp
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.over import Frame, Over, RowsFrame
from headrace.plan.nodes.sequence import Sequence, StepKind
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.unsorted import UnsortedWindows

# Durations in units that a person would write.


Span = Callable[[int], str]
"""Formats a duration in ticks."""

UNITS: Final = (
    (604_800, "WEEK"),
    (86_400, "DAY"),
    (3600, "HOUR"),
    (60, "MINUTE"),
    (1, "SECOND"),
)


def in_units(ticks_per_second: int | None) -> Span:
    """Formats durations in the largest unit that divides them; None: in ticks."""
    return str if ticks_per_second is None else partial(span, ticks_per_second=ticks_per_second)


def span(ticks: int, ticks_per_second: int) -> str:
    """A duration as text."""
    for seconds, name in UNITS:
        count, rest = divmod(ticks, seconds * ticks_per_second)
        if rest == 0 and count:
            return f"{count} {name}{'S' if count > 1 else ''}"
    count, rest = divmod(ticks * 1000, ticks_per_second)
    return f"{count} MILLISECONDS" if rest == 0 else f"{ticks} TICKS"


SPECS: dict[type[Any], Callable[[Any, Span], str]] = {
    windows.Range: lambda w, span: f"RANGE {_range(w, span)}",
    windows.Sliding: lambda w, span: (
        f"RANGE {_range(w, span)} SLIDE {span(w.slide)}{_offset(w.offset, span)}"
    ),
    windows.Rows: lambda w, span: (
        (f"PARTITION BY {', '.join(w.keys)} " if w.keys else "")
        + (f"ROWS {w.count}" if w.least is None else f"ROWS MIN {w.least}, MAX {w.count}")
    ),
    windows.Upserts: lambda w, span: f"PRIMARY KEY ({', '.join(w.keys)}) DELETE WHEN {w.deletes}",
    windows.SlidingRows: lambda w, span: f"{SPECS[windows.Rows](w, span)} SLIDE {w.slide}",
    windows.Now: lambda w, span: "NOW",
    windows.Session: lambda w, span: _partition(w.keys) + f"SESSION {span(w.gap)}",
    windows.Unbounded: lambda w, span: "UNBOUNDED",
}

LINES: dict[type[Plan], Callable[[Any, Span], str]] = {
    nodes.Source: lambda p, span: f"stream {p.name} ({p.time.value} time)",
    nodes.Table: lambda p, span: f"table {p.name}",
    nodes.Inlet: lambda p, span: f"answers of stage {p.name}",
    nodes.Select: lambda p, span: f"select {p.predicate}",
    nodes.Project: lambda p, span: "project " + ", ".join(_named(name, e) for name, e in p.columns),
    nodes.Union: lambda p, span: "union, in order of time",
    nodes.Window: lambda p, span: f"window [{_spec(p.spec, span)}]{_shown(p)}",
    nodes.Granularity: lambda p, span: f"granularity {_grain(p, span)}{_shown(p)}",
    nodes.Join: lambda p, span: "join" + _on(p),
    OuterJoin: lambda p, span: f"{p.kind.value} join" + _on(p),
    nodes.Aggregate: lambda p, span: f"aggregate {_calls(p)}",
    nodes.SlidingAggregate: lambda p, span: f"aggregate {_calls(p)} from panes [{_spec(p.window, span)}]",
    SessionAggregate: lambda p, span: f"aggregate {_calls(p)} of each session [{_session(p, span)}]",
    MergingSessions: lambda p, span: (
        f"aggregate {_calls(p)} of each session [{_session(p, span)}], in any order"
    ),
    EarlySessions: lambda p, span: (
        f"aggregate {_calls(p)} of each session [{_session(p, span)}], in any order, closed groups at once"
    ),
    UnsortedWindows: lambda p, span: (
        f"aggregate {_calls(p)} from panes [{_spec(p.window, span)}], in any order"
    ),
    EarlyWindows: lambda p, span: (
        f"aggregate {_calls(p)} [{_spec(p.window, span)}], in any order, closed groups at once"
    ),
    nodes.Distinct: lambda p, span: "distinct",
    Lag: lambda p, span: "look back: " + _lags(p),
    DistinctOn: lambda p, span: (
        f"first row of each {', '.join(p.keys)}" + ("" if p.within is None else f" within {span(p.within)}")
    ),
    Over: lambda p, span: f"over {_frame(p.frame, span)}: " + _overs(p),
    Unnest: lambda p, span: f"unnest {p.operand} as {_unnested(p)}",
    TopN: lambda p, span: "first " + _top(p),
    nodes.Except: lambda p, span: "except all" if p.all else "except",
    nodes.IStream: lambda p, span: (
        "istream" if p.nets else "istream, without state: no row is replaced by an equal one"
    ),
    nodes.DStream: lambda p, span: "dstream",
    Changelog: lambda p, span: "changelog" + (f" by {', '.join(p.keys)}" if p.keys else ""),
    nodes.RStream: lambda p, span: (
        f"rstream each {span(p.slide)}{_offset(p.phase, span)}" + (", each row once" if p.once else "")
    ),
    Sequence: lambda p, span: f"sequence {_sequence(p, span)}",
    Match: lambda p, span: f"match {_match(p, span)}",
    Stamp: lambda p, span: "stamp with the current time",
    ordering.Order: lambda p, span: "order: rows wait here until no earlier row can arrive",
    ordering.AdaptiveOrder: lambda p, span: (
        "order: rows wait where they are fewest, before or after " + _steps(p, span)
    ),
    ordering.Merge: lambda p, span: "merge: in any order, bounded by heartbeats",
    ordering.Expand: lambda p, span: f"copy each row for every window [{_spec(p.window, span)}]",
}


def _steps(plan: ordering.AdaptiveOrder, span: Span) -> str:
    """The steps that rows take before or after they wait."""
    return ", ".join(f"({show_node(step, span)})" for step in plan.steps)


def _spec(spec: windows.WindowSpec, span: Span) -> str:
    return SPECS[type(spec)](spec, span)


def _range(window: windows.Range | windows.Sliding, span: Span) -> str:
    most = span(window.size)
    return most if window.least is None else f"MIN {span(window.least)}, MAX {most}"


def _session(plan: SessionAggregate, span: Span) -> str:
    return _partition(plan.partition) + f"SESSION {span(plan.gap)}"


def _partition(keys: tuple[str, ...] | None) -> str:
    return "" if keys is None else f"PARTITION BY {', '.join(keys) or '()'} "


def show(plan: Plan, span: Span = str) -> str:
    """The plan as an indented tree, the result first and the streams last; `span` formats durations."""
    return "\n".join(_lines(plan, 0, span))


def show_node(plan: Plan, span: Span = str) -> str:
    """One node, without its inputs."""
    return LINES[type(plan)](plan, span)


def _lines(plan: Plan, depth: int, span: Span) -> list[str]:
    line = "  " * depth + show_node(plan, span)
    return [line, *(below for p in plan.inputs for below in _lines(p, depth + 1, span))]


def _offset(ticks: int, span: Span) -> str:
    return f" OFFSET {span(ticks)}" if ticks else ""


def _named(name: str, expression: object) -> str:
    """`expression AS name`, or the name alone if they are the same."""
    return name if str(expression) == name else f"{expression} AS {name}"


def _grain(plan: nodes.Granularity, span: Span) -> str:
    finest = span(plan.grain)
    grain = finest if plan.coarsest is None else f"coarsest {span(plan.coarsest)}, finest {finest}"
    return grain if plan.ticks == windows.EVERY else f"{grain}, of slides of {span(plan.ticks.slide)}"


def _shown(plan: nodes.Window | nodes.Granularity) -> str:
    return "" if plan.quality_column is None else f", size in column {plan.quality_column}"


def _on(plan: nodes.Pairing) -> str:
    keys = [str(each) for each in plan.equalities]
    conditions = keys + ([str(plan.residual)] if plan.residual is not None else [])
    return " on " + " and ".join(conditions) if conditions else ", every pair"


def _calls(plan: nodes.Aggregate) -> str:
    calls = ", ".join(f"{call} AS {call.name}" for call in plan.calls)
    keys = f"by {', '.join(plan.keys)}" if plan.keys else ""
    return " ".join(part for part in (calls, keys) if part)


def _top(plan: TopN) -> str:
    numbered = f", numbered as {plan.rank}" if plan.rank else ""
    keys = f" of each {', '.join(plan.keys)}" if plan.keys else ""
    return f"{plan.count}{keys} by {', '.join(map(_sort_key, plan.order))}{numbered}"


def _sort_key(key: SortKey) -> str:
    """A sort key in words; the place of nulls only if it is not the default."""
    direction = " descending" if key.descends else ""
    return key.column + direction + ("" if key.nulls_first != key.descends else _nulls(key))


def _nulls(key: SortKey) -> str:
    return ", nulls first" if key.nulls_first else ", nulls last"


def _sequence(plan: Sequence, span: Span) -> str:
    steps = ", ".join(_STEPS[step.kind].format(i + 1) for i, step in enumerate(plan.steps))
    keys = [" = ".join(names) for names in zip(*(step.keys for step in plan.steps), strict=True)]
    conditions = [str(step.condition) for step in plan.steps if step.condition is not None]
    clauses = [
        f"({steps}) {plan.mode.value}",
        *(["strict"] if plan.strict else []),
        *([f"partition by {', '.join(keys)}"] if keys else []),
        *([] if plan.within is None else [f"within {span(plan.within)}"]),
        *([f"where {' and '.join(conditions)}"] if conditions else []),
    ]
    return " ".join(clauses)


_STEPS = {StepKind.ONCE: "#{}", StepKind.REPEATED: "#{}+", StepKind.MISSING: "not #{}"}


def _match(plan: Match, span: Span) -> str:
    """The pattern, the partition, the conditions and what is measured."""
    variables = [str(v) for v in plan.variables if v.condition is not None or v.test is not None]
    clauses = [
        f"({plan.pattern}){', rows between' if plan.skips else ''}, {plan.skip}",
        *([f"partition by {', '.join(plan.keys)}"] if plan.keys else []),
        *([] if plan.within is None else [f"within {span(plan.within)}"]),
        *([] if plan.gate is None else [f"from rows with {plan.gate}"]),
        *([f"where {', '.join(variables)}"] if variables else []),
        *([f"measures {', '.join(map(str, plan.measures))}"] if plan.measures else []),
    ]
    return " ".join(clauses)


def _unnested(plan: Unnest) -> str:
    """The new columns of an UNNEST."""
    names = ", ".join([*plan.names, *([] if plan.ordinal is None else [plan.ordinal])])
    return names + (", also for rows without elements" if plan.outer else "")


def _lags(plan: Lag) -> str:
    calls = ", ".join(f"lag({c.column}, {c.offset}) AS {c.name}" for c in plan.calls)
    return calls + (f" of each {', '.join(plan.keys)}" if plan.keys else "")


def _overs(plan: Over) -> str:
    calls = ", ".join(f"{call} AS {call.name}" for call in plan.calls)
    return calls + (f" of each {', '.join(plan.keys)}" if plan.keys else "")


def _frame(frame: Frame, span: Span) -> str:
    """The rows of a frame, as SQL writes them."""
    rows = isinstance(frame, RowsFrame)
    if not frame.preceding:
        before = "CURRENT ROW" if frame.preceding == 0 else "UNBOUNDED PRECEDING"
    else:
        before = f"{frame.preceding if rows else span(frame.preceding)} PRECEDING"
    return f"{'ROWS' if rows else 'RANGE'} {before}"


# A plan as a diagram: one box for each node; equal parts are drawn once, because the engine shares them.


TITLES: Final[dict[type[Plan], Callable[[Any], tuple[str, str]]]] = {
    Source: lambda p: (p.name, f"{p.time.value} time"),
    Table: lambda p: (p.name, "table"),
    Expand: lambda p: ("copy", "each row for every window"),
    Order: lambda p: ("order", "by time"),
    AdaptiveOrder: lambda p: ("order", "by time, where rows are fewest"),
    Merge: lambda p: ("merge", "in any order"),
}
"""Names of nodes whose line of text does not begin with the name."""

LOOKS: Final[dict[type[Plan], Look]] = {
    Source: Look.SOURCE,
    Table: Look.TABLE,
    Order: Look.ORDER,
    AdaptiveOrder: Look.ORDER,
}


def headline(plan: Plan, span: Span = str) -> tuple[str, str]:
    """The text in the box of a node: its name, and one line of details."""
    rule = TITLES.get(type(plan))
    if rule is not None:
        return rule(plan)
    name, _, rest = show_node(plan, span).partition(" ")
    return name.rstrip(",:"), rest


def plan_diagram(plan: Plan, answer: str, native: Collection[Plan] = (), span: Span = str) -> Diagram:
    """The plan from its streams up to the result; `native` are the nodes that Spark runs itself.

    `span` formats durations.
    """
    parts = list(dict.fromkeys(_inputs_first(plan)))
    ids = {part: f"p{i}" for i, part in enumerate(parts)}
    boxes = [_box(part, ids[part], part in native, span) for part in parts]
    arcs = [Arc(ids[below], ids[part]) for part in parts for below in part.inputs]
    top = Box("answer", answer, "answer", Look.SINK, note=", ".join(plan.schema.names))
    return Diagram((*boxes, top), (*arcs, Arc(ids[plan], "answer")))


def plan_html(plan: Plan) -> str:
    """The plan drawn, with its text folded below; durations are in ticks."""
    section = Section("plan", show(plan))
    return str(Explanation(plan_diagram(plan, "answer"), (section,), "html"))


def _inputs_first(plan: Plan) -> list[Plan]:
    return [*(part for below in plan.inputs for part in _inputs_first(below)), plan]


def _box(plan: Plan, id: str, native: bool, span: Span) -> Box:
    title, detail = headline(plan, span)
    look = Look.NATIVE if native else LOOKS.get(type(plan), Look.PLAIN)
    return Box(id, title, detail, look, note=show_node(plan, span))
