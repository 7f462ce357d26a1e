"""`AVG(x) [GRANULARITY …]`: the validity of what is aggregated, rounded before the aggregate (002, §2.2)."""

from __future__ import annotations

from headrace.plan.check import ends_known
from headrace.plan.nodes import Granularity, Plan
from headrace.sql.clauses import GranularityClause
from headrace.sql.codes import Code
from headrace.sql.place import fail
from headrace.sql.scope import Scope
from headrace.sql.windows import least_of, ticks


def rounded(plan: Plan, clause: GranularityClause | None, scope: Scope, shown: str | None) -> Plan:
    """The input of an aggregate at the granularity that was asked for, told in the column `shown`."""
    if clause is None:
        return plan
    if not ends_known(plan):
        hint = "use time windows: [RANGE 1 HOUR]"
        fail(Code.GRANULARITY, "GRANULARITY rounds rows whose end is known as they come", clause.span, hint)
    return Granularity(plan, *bounds_of(clause, scope), shown)


def bounds_of(clause: GranularityClause, scope: Scope) -> tuple[int, int | None]:
    """The finest granularity and the coarsest, in ticks; without a coarsest it is fixed."""
    per_second = _ticks_per_second(scope)
    if clause.coarsest is None:
        return ticks(clause.finest, per_second), None
    coarsest = ticks(clause.coarsest, per_second)
    return least_of(clause.finest, coarsest, "FINEST", "COARSEST", per_second), coarsest


def refuse_on_slides(clause: GranularityClause | None) -> None:
    """A sliding window changes at its slides only: they are its granularity."""
    if clause is not None:
        hint = "leave the clause out, or write [RANGE …] without SLIDE"
        fail(Code.GRANULARITY, "a sliding window is answered at its slides", clause.span, hint)


def _ticks_per_second(scope: Scope) -> int | None:
    return next((i.input.ticks_per_second for i in scope.items if not i.input.is_static), None)
