"""A plan as text: what is done, in which order, where rows are put in order and where they wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.plan import nodes, ordering, windows
from headrace.plan.lag import Lag
from headrace.plan.latent import Stamp
from headrace.plan.nodes import Plan
from headrace.plan.sequence import Sequence, StepKind
from headrace.plan.session import LooseSessions, SessionAggregate
from headrace.plan.spans import Span
from headrace.plan.top import SortKey, TopN

SPECS: dict[type[Any], Callable[[Any, Span], str]] = {
    windows.Range: lambda w, span: f"RANGE {_range(w, span)}",
    windows.Sliding: lambda w, span: f"RANGE {span(w.size)} SLIDE {span(w.slide)}{_offset(w.offset, span)}",
    windows.Rows: lambda w, span: (
        (f"PARTITION BY {', '.join(w.keys)} " if w.keys else "") + f"ROWS {w.count}"
    ),
    windows.Now: lambda w, span: "NOW",
    windows.Session: lambda w, span: _partition(w.keys) + f"SESSION {span(w.gap)}",
    windows.Unbounded: lambda w, span: "UNBOUNDED",
}

LINES: dict[type[Plan], Callable[[Any, Span], str]] = {
    nodes.Source: lambda p, span: f"stream {p.name} ({p.time.value} time)",
    nodes.Table: lambda p, span: f"table {p.name}",
    nodes.Inlet: lambda p, span: f"answers of another part: {p.name}",
    nodes.Select: lambda p, span: f"select {p.predicate}",
    nodes.Project: lambda p, span: "project " + ", ".join(_named(name, e) for name, e in p.columns),
    nodes.Union: lambda p, span: "union, in order of time",
    nodes.Window: lambda p, span: f"window [{_spec(p.spec, span)}]{_shown(p)}",
    nodes.Granularity: lambda p, span: f"granularity {_grain(p, span)}{_shown(p)}",
    nodes.Join: lambda p, span: "join" + _on(p),
    nodes.Aggregate: lambda p, span: f"aggregate {_calls(p)}",
    nodes.SlidingAggregate: lambda p, span: f"aggregate {_calls(p)} from panes [{_spec(p.window, span)}]",
    SessionAggregate: lambda p, span: f"aggregate {_calls(p)} of each session [{_session(p, span)}]",
    LooseSessions: lambda p, span: (
        f"aggregate {_calls(p)} of each session [{_session(p, span)}], in any order"
    ),
    nodes.Distinct: lambda p, span: "distinct",
    Lag: lambda p, span: "look back: " + _lags(p),
    TopN: lambda p, span: "first " + _top(p),
    nodes.Except: lambda p, span: "except all" if p.all else "except",
    nodes.IStream: lambda p, span: (
        "istream" if p.nets else "istream: no equal row goes as one comes, none is held"
    ),
    nodes.DStream: lambda p, span: "dstream",
    nodes.RStream: lambda p, span: (
        f"rstream each {span(p.slide)}{_offset(p.phase, span)}"
        + (", a row at one tick only" if p.once else "")
    ),
    Sequence: lambda p, span: f"sequence {_sequence(p, span)}",
    Stamp: lambda p, span: "stamp with the instant of passing",
    ordering.Order: lambda p, span: "order: rows wait here until no earlier one can come",
    ordering.Merge: lambda p, span: "merge: disorder is left, punctuations bound it",
    ordering.Expand: lambda p, span: f"a copy for each window [{_spec(p.window, span)}]",
}


def _spec(spec: windows.WindowSpec, span: Span) -> str:
    return SPECS[type(spec)](spec, span)


def _range(window: windows.Range, span: Span) -> str:
    most = span(window.size)
    return most if window.least is None else f"MIN {span(window.least)}, MAX {most}"


def _session(plan: SessionAggregate, span: Span) -> str:
    return _partition(plan.partition) + f"SESSION {span(plan.gap)}"


def _partition(keys: tuple[str, ...] | None) -> str:
    return "" if keys is None else f"PARTITION BY {', '.join(keys) or '()'} "


def show(plan: Plan, span: Span = str) -> str:
    """The plan as an indented tree, the answer first and the streams last; `span` writes durations."""
    return "\n".join(_lines(plan, 0, span))


def show_node(plan: Plan, span: Span = str) -> str:
    """One node, without what is below it."""
    return LINES[type(plan)](plan, span)


def _lines(plan: Plan, depth: int, span: Span) -> list[str]:
    line = "  " * depth + show_node(plan, span)
    return [line, *(below for p in plan.inputs for below in _lines(p, depth + 1, span))]


def _offset(ticks: int, span: Span) -> str:
    return f" OFFSET {span(ticks)}" if ticks else ""


def _named(name: str, expression: object) -> str:
    return name if str(expression) == name else f"{expression} AS {name}"


def _grain(plan: nodes.Granularity, span: Span) -> str:
    finest = span(plan.grain)
    return finest if plan.coarsest is None else f"coarsest {span(plan.coarsest)}, finest {finest}"


def _shown(plan: nodes.Window | nodes.Granularity) -> str:
    return "" if plan.shown is None else f", told as {plan.shown}"


def _on(plan: nodes.Join) -> str:
    keys = [str(each) for each in plan.equalities]
    conditions = keys + ([str(plan.residual)] if plan.residual is not None else [])
    return " on " + " and ".join(conditions) if conditions else ", every pair"


def _calls(plan: nodes.Aggregate) -> str:
    calls = ", ".join(f"{call} AS {call.name}" for call in plan.calls)
    return calls + (f" by {', '.join(plan.keys)}" if plan.keys else "")


def _top(plan: TopN) -> str:
    numbered = f", numbered as {plan.rank}" if plan.rank else ""
    keys = f" of each {', '.join(plan.keys)}" if plan.keys else ""
    return f"{plan.count}{keys} by {', '.join(map(_sort_key, plan.order))}{numbered}"


def _sort_key(key: SortKey) -> str:
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


def _lags(plan: Lag) -> str:
    calls = ", ".join(f"lag({c.column}, {c.offset}) AS {c.name}" for c in plan.calls)
    return calls + (f" of each {', '.join(plan.keys)}" if plan.keys else "")
