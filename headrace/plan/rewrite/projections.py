"""Projections go down to the source and become one: fewer columns are ordered, windowed and held.

Not below DISTINCT, EXCEPT, ISTREAM and DSTREAM, which compare whole rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from headrace.expressions import Column, Expression, Literal
from headrace.expressions.rewriting import is_movable, substitute
from headrace.plan import nodes
from headrace.plan.nodes import Plan, Project
from headrace.plan.offers import renaming
from headrace.plan.order import keeps_arrival_order
from headrace.plan.rewrite.selections import BY_TIME
from headrace.plan.windows import Rows


def remove(plan: Plan) -> Plan | None:
    """π that gives back every column as it was → nothing."""
    if not isinstance(plan, Project) or not all(_is_same(name, e) for name, e in plan.columns):
        return None
    below = plan.input.schema
    same = len(plan.columns) == len(below.names) and plan.schema.equals(below)
    return plan.input if same else None


def _is_same(name: str, expression: Expression) -> bool:
    return isinstance(expression, Column) and expression.name == name


def merge(plan: Plan) -> Plan | None:
    """π(π(x)) → π(x), unless something costly would then be computed twice."""
    if not (isinstance(plan, Project) and isinstance(plan.input, Project)):
        return None
    below = dict(plan.input.columns)
    used = Counter(name for _, e in plan.columns for name in _mentions(e))
    costly = [name for name, e in below.items() if not isinstance(e, (Column, Literal))]
    if any(used[name] > 1 for name in costly) or not all(map(is_movable, below.values())):
        return None
    return Project(plan.input.input, tuple((name, substitute(e, below)) for name, e in plan.columns))


def _mentions(expression: Expression) -> list[str]:
    own = [expression.name] if isinstance(expression, Column) else []
    return own + [name for each in expression.children() for name in _mentions(each)]


def _moves(plan: Plan) -> bool:
    return isinstance(plan, Project) and all(is_movable(e) for _, e in plan.columns)


def _reads(plan: Project, shown: str | None) -> bool:
    """Whether it needs the column in which a window or granularity tells the quality."""
    return shown is not None and any(shown in e.columns() for _, e in plan.columns)


def below_window(plan: Plan) -> Plan | None:
    """π(ω(x)) → ω(π(x)); past a window that counts rows only if that leaves its keys and its order."""
    if not (isinstance(plan, Project) and isinstance(plan.input, nodes.Window) and _moves(plan)):
        return None
    window = plan.input
    if _reads(plan, window.shown):
        return None
    below = plan.with_inputs((window.input,))
    if isinstance(window.spec, BY_TIME):
        return replace(window, input=below, shown=None)
    spec = _keyed_anew(plan, window.spec) if isinstance(window.spec, Rows) else None
    if spec is None or not keeps_arrival_order(window.input):
        return None
    return nodes.Window(below, spec)


def _keyed_anew(plan: Project, spec: Rows) -> Rows | None:
    """The window with its keys under the names that they have after the projection."""
    after = {e.name: name for name, e in reversed(plan.columns) if isinstance(e, Column)}
    if not set(spec.keys) <= after.keys():
        return None
    return replace(spec, keys=tuple(after[key] for key in spec.keys))


def below_union(plan: Plan) -> Plan | None:
    """π(x ∪ y) → π(x) ∪ π(y)."""
    if not (isinstance(plan, Project) and type(plan.input) is nodes.Union and _moves(plan)):
        return None
    union = plan.input
    return nodes.Union(tuple(_over(plan, union, each) for each in union.branches))


def _over(plan: Project, union: Plan, branch: Plan) -> Plan:
    names = renaming(union.schema, branch.schema)
    return Project(branch, tuple((name, e.rename(names)) for name, e in plan.columns))


def below_stream(plan: Plan) -> Plan | None:
    """π(RSTREAM(x)) → RSTREAM(π(x)), and so below granularity: computed once, reported often."""
    if not (isinstance(plan, Project) and isinstance(plan.input, (nodes.RStream, nodes.Granularity))):
        return None
    below, made = plan.input, plan.with_inputs((plan.input.input,))
    if not _moves(plan) or (isinstance(below, nodes.Granularity) and _reads(plan, below.shown)):
        return None
    if isinstance(below, nodes.Granularity):
        return replace(below, input=made, shown=None)
    return below.with_inputs((made,))
