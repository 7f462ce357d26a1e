"""The plan of a grouped SELECT: arguments computed, rows aggregated, groups filtered, columns listed.

Over one stream with a sliding window, the aggregate keeps panes and knows the window's bounds; otherwise it
is the aggregate of a relation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from headrace.expressions import Column, Expression, coalesce
from headrace.plan.nodes.core import Aggregate, AggregateCall, Equality, Plan, Project, SlidingAggregate
from headrace.plan.nodes.outer_join import JoinKind, outer_joined
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Session, Sliding
from headrace.sql.binder.grouping import Grouping, refuse_granularity, rounded
from headrace.sql.binder.joins import joined, selected
from headrace.sql.binder.quality_columns import clauses_of
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.select_list import Listed, projected
from headrace.sql.binder.typed import conjuncts
from headrace.sql.binder.window_bounds import block_of
from headrace.sql.binder.windows import Cumulating
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

COUNTS: Final = frozenset({"count", "count_distinct"})
"""The aggregates that are 0 and not NULL where a group has no rows."""


def aggregated(
    scope: Scope,
    where: list[Expression],
    group: exp.Group | None,
    columns: list[Listed],
    having: exp.Expr | None,
    aliases: Mapping[str, exp.Expr],
) -> Plan:
    """The whole plan above FROM and WHERE."""
    clauses = clauses_of([*(each.node for each in columns), having])
    window = _shown_window(scope, bool(clauses))
    block = block_of(scope.items[0].input, window) if isinstance(window, Cumulating) else None
    grouping = Grouping(scope, aliases, window is not None, clauses, None if block is None else block.start)
    for key in _keys(group, columns):
        grouping.add_key(key)
    grouping.clause = "SELECT"
    made = [(each.name, each.resolved(grouping)) for each in columns]
    grouping.clause = "HAVING"
    conditions = conjuncts(grouping, having)
    if block is not None:
        conditions.append(block.is_last(grouping.bound("window_end")))
    plan = selected(scope.items[0].input.plan, where) if window else joined(scope, where)
    partition = _partition(grouping, window, group) if isinstance(window, Session) else None
    grouped = _aggregate(plan, grouping, window, partition)
    kept = selected(grouped, [grouping.after(each) for each in conditions])
    return projected(kept, [(name, grouping.after(each)) for name, each in made])


def _shown_window(scope: Scope, rounded: bool) -> Sliding | Session | None:
    """The window of the only item, if its answers have a start and an end: not if these may change."""
    only = scope.items[0].window if len(scope.items) == 1 and not scope.halves else None
    if type(only) is Sliding and (rounded or only.least is not None):
        return None
    return only if isinstance(only, (Sliding, Session)) else None


def _keys(group: exp.Group | None, columns: list[Listed]) -> list[exp.Expr]:
    """The expressions of GROUP BY; a number is a position in the SELECT list."""
    if group is None:
        return []
    check_read(group)
    return [_at_position(each, columns) for each in group.expressions]


def _at_position(node: exp.Expr, columns: list[Listed]) -> exp.Expr:
    """The expression that a key refers to by its position in the SELECT list."""
    if not isinstance(node, exp.Literal) or node.is_string:
        return node
    position = int(node.name) if node.name.isdecimal() and len(node.name) < 9 else 0
    if not 1 <= position <= len(columns) or columns[position - 1].star is not None:
        hint = f"SELECT has {len(columns)} columns, counted from 1"
        fail(Code.GROUP_POSITION, f"GROUP BY {node.name} is not a position in the SELECT list", node, hint)
    return columns[position - 1].node


def _aggregate(
    plan: Plan, grouping: Grouping, window: Sliding | Session | None, partition: tuple[str, ...] | None
) -> Plan:
    """The aggregate node for the window: sliding, session or relation."""
    if window is None:
        return _of_relation(plan, grouping)
    refuse_granularity(grouping.granularities)
    prepared, calls = _prepared(plan, grouping, 0)
    keys = tuple(grouping.keys.values())
    if not keys and not calls:
        calls = (AggregateCall("count", "count"),)
    bounds = (
        (grouping.bounds["window_start"], grouping.bounds["window_end"]) if grouping.uses_bounds else None
    )
    if isinstance(window, Session):
        return SessionAggregate(prepared, keys, calls, window.gap, bounds, partition)
    return SlidingAggregate(prepared, keys, calls, Sliding(window.size, window.slide, window.offset), bounds)


def _of_relation(plan: Plan, grouping: Grouping) -> Plan:
    """The aggregate of a relation: one for each granularity, and the rows of a group side by side."""
    keys, parts, counts = tuple(grouping.keys.values()), list[Plan](), list[str]()
    for i, clause in enumerate(grouping.granularities or (None,)):
        below = rounded(plan, clause, grouping.scope, grouping.quality_column)
        prepared, calls = _prepared(below, grouping, i)
        if calls or len(grouping.granularities) < 2:
            parts.append(
                Aggregate(prepared, keys, calls or ((AggregateCall("count", "count"),) * (not keys)))
            )
        counts += [call.name for call in calls if call.function in COUNTS]
    if len(parts) == 1:
        return parts[0]
    together = parts[0]
    for part in parts[1:]:
        together = _beside(together, part, keys)
    zeros = (
        (name, coalesce(Column(name), 0) if name in counts else Column(name))
        for name in together.schema.names
    )
    return Project(together, tuple(zeros))


def _beside(left: Plan, right: Plan, keys: tuple[str, ...]) -> Plan:
    """The groups of two aggregates: at each instant, those that one of them has."""
    taken = {name.lower() for name in (*left.schema.names, *right.schema.names)}
    renamed = {key: fresh(key, taken) for key in keys}
    added = [name for name in right.schema.names if name not in renamed]
    other = Project(
        right, (*((renamed[key], Column(key)) for key in keys), *((name, Column(name)) for name in added))
    )
    pairs = [Equality(key, renamed[key], null_safe=True) for key in keys]
    both = outer_joined(JoinKind.FULL, left, other, pairs)
    own = [name for name in left.schema.names if name not in renamed]
    return Project(
        both,
        (
            *((key, coalesce(Column(key), Column(renamed[key]))) for key in keys),
            *((name, Column(name)) for name in (*own, *added)),
        ),
    )


def _partition(grouping: Grouping, window: Session, group: exp.Group | None) -> tuple[str, ...] | None:
    """The group keys that define sessions; None if all of them do."""
    if window.keys is None:
        return None
    known = {each.name: name for each, name in grouping.keys.items() if isinstance(each, Column)}
    missing = next((name for name in window.keys if name not in known), None)
    if missing is not None:
        hint = f"add {missing} to GROUP BY, or remove it from PARTITION BY"
        message = f"sessions are partitioned by {missing}, which is not in GROUP BY"
        fail(Code.SESSION, message, group, hint)
    partition = tuple(known[name] for name in window.keys)
    return None if set(partition) == set(grouping.keys.values()) else partition


def _prepared(plan: Plan, grouping: Grouping, granularity: int) -> tuple[Plan, tuple[AggregateCall, ...]]:
    """The calls of a granularity with columns as arguments.

    Keys and arguments that are not columns yet are computed first.
    """
    columns = {name: key for key, name in grouping.keys.items()}
    taken = {
        name.lower() for name in (*plan.schema.names, *columns, *(c.name for c in grouping.calls.values()))
    }
    calls = []
    for (_, arguments, of), call in grouping.calls.items():
        if of != granularity:
            continue
        calls.append(call.over([_column_of(each, columns, taken) for each in arguments]))
    plain = all(isinstance(each, Column) for each in columns.values())
    return (plan if plain else Project(plan, tuple(columns.items()))), tuple(calls)


def _column_of(argument: Expression, columns: dict[str, Expression], taken: set[str]) -> str:
    """The column that holds `argument`, added if it is new."""
    known = next((name for name, each in columns.items() if each == argument), None)
    if known is not None:
        return known
    name = argument.name if isinstance(argument, Column) else fresh("argument", taken)
    columns[name] = argument
    return name
