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
from headrace.plan.top import SortKey, TopN

SPECS: dict[type[Any], Callable[[Any], str]] = {
    windows.Range: lambda w: f"RANGE {w.size}" if w.least is None else f"RANGE MIN {w.least}, MAX {w.size}",
    windows.Sliding: lambda w: f"RANGE {w.size} SLIDE {w.slide}{_offset(w.offset)}",
    windows.Rows: lambda w: (f"PARTITION BY {', '.join(w.keys)} " if w.keys else "") + f"ROWS {w.count}",
    windows.Now: lambda w: "NOW",
    windows.Session: lambda w: _partition(w.keys) + f"SESSION {w.gap}",
    windows.Unbounded: lambda w: "UNBOUNDED",
}

LINES: dict[type[Plan], Callable[[Any], str]] = {
    nodes.Source: lambda p: f"stream {p.name} ({p.time.value} time)",
    nodes.Table: lambda p: f"table {p.name}",
    nodes.Inlet: lambda p: f"answers of another part: {p.name}",
    nodes.Select: lambda p: f"select {p.predicate}",
    nodes.Project: lambda p: "project " + ", ".join(_named(name, e) for name, e in p.columns),
    nodes.Union: lambda p: "union, in order of time",
    nodes.Window: lambda p: f"window [{SPECS[type(p.spec)](p.spec)}]{_shown(p)}",
    nodes.Granularity: lambda p: f"granularity {_grain(p)}{_shown(p)}",
    nodes.Join: lambda p: "join" + _on(p),
    nodes.Aggregate: lambda p: f"aggregate {_calls(p)}",
    nodes.SlidingAggregate: lambda p: f"aggregate {_calls(p)} from panes [{SPECS[type(p.window)](p.window)}]",
    SessionAggregate: lambda p: f"aggregate {_calls(p)} of each session [{_session(p)}]",
    LooseSessions: lambda p: f"aggregate {_calls(p)} of each session [{_session(p)}], in any order",
    nodes.Distinct: lambda p: "distinct",
    Lag: lambda p: "look back: " + _lags(p),
    TopN: lambda p: "first " + _top(p),
    nodes.Except: lambda p: "except all" if p.all else "except",
    nodes.IStream: lambda p: "istream" if p.nets else "istream: no equal row goes as one comes, none is held",
    nodes.DStream: lambda p: "dstream",
    nodes.RStream: lambda p: (
        f"rstream each {p.slide}{_offset(p.phase)}" + (", a row at one tick only" if p.once else "")
    ),
    Sequence: lambda p: f"sequence {_sequence(p)}",
    Stamp: lambda p: "stamp with the instant of passing",
    ordering.Order: lambda p: "order: rows wait here until no earlier one can come",
    ordering.Merge: lambda p: "merge: disorder is left, punctuations bound it",
    ordering.Expand: lambda p: f"a copy for each window [{SPECS[type(p.window)](p.window)}]",
}


def _session(plan: SessionAggregate) -> str:
    return _partition(plan.partition) + f"SESSION {plan.gap}"


def _partition(keys: tuple[str, ...] | None) -> str:
    return "" if keys is None else f"PARTITION BY {', '.join(keys) or '()'} "


def show(plan: Plan) -> str:
    """The plan as an indented tree, the answer first and the streams last."""
    return "\n".join(_lines(plan, 0))


def show_node(plan: Plan) -> str:
    """One node, without what is below it."""
    return LINES[type(plan)](plan)


def _lines(plan: Plan, depth: int) -> list[str]:
    line = "  " * depth + show_node(plan)
    return [line, *(below for p in plan.inputs for below in _lines(p, depth + 1))]


def _offset(ticks: int) -> str:
    return f" OFFSET {ticks}" if ticks else ""


def _named(name: str, expression: object) -> str:
    return name if str(expression) == name else f"{expression} AS {name}"


def _grain(plan: nodes.Granularity) -> str:
    return str(plan.grain) if plan.coarsest is None else f"coarsest {plan.coarsest}, finest {plan.grain}"


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


def _sequence(plan: Sequence) -> str:
    steps = ", ".join(_STEPS[step.kind].format(i + 1) for i, step in enumerate(plan.steps))
    keys = [" = ".join(names) for names in zip(*(step.keys for step in plan.steps), strict=True)]
    conditions = [str(step.condition) for step in plan.steps if step.condition is not None]
    clauses = [
        f"({steps}) {plan.mode.value}",
        *(["strict"] if plan.strict else []),
        *([f"partition by {', '.join(keys)}"] if keys else []),
        *([] if plan.within is None else [f"within {plan.within}"]),
        *([f"where {' and '.join(conditions)}"] if conditions else []),
    ]
    return " ".join(clauses)


_STEPS = {StepKind.ONCE: "#{}", StepKind.REPEATED: "#{}+", StepKind.MISSING: "not #{}"}


def _lags(plan: Lag) -> str:
    calls = ", ".join(f"lag({c.column}, {c.offset}) AS {c.name}" for c in plan.calls)
    return calls + (f" of each {', '.join(plan.keys)}" if plan.keys else "")
