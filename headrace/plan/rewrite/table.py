"""The table of rules, in the order in which they are tried; `docs/concepts/planning.md` shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from headrace.plan.analysis.istream_state import never_cancels, ticks_of
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.core import (
    Aggregate,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Window,
)
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.quality import bounds_of
from headrace.plan.nodes.trees import minds_order
from headrace.plan.nodes.windows import Sliding
from headrace.plan.rewrite import joins, projections, selections
from headrace.plan.rewrite.order_joins import order_joins
from headrace.plan.rewrite.rule import Rule

# ISTREAM and RSTREAM without state if they need none, and aggregates with panes.


def remember_nothing(plan: Plan) -> Plan | None:
    """ISTREAM where no row enters as an equal row leaves → an ISTREAM without state."""
    if not isinstance(plan, IStream) or not plan.nets or not never_cancels(plan.input):
        return None
    return replace(plan, nets=False)


def report_once(plan: Plan) -> Plan | None:
    """RSTREAM of rows that are each valid at exactly one tick → an RSTREAM without state."""
    if not isinstance(plan, RStream) or plan.once or ticks_of(plan.input) != plan.ticks:
        return None
    return replace(plan, once=True)


# Aggregates over sliding windows keep panes, not rows.


def choose_panes(plan: Plan) -> Plan | None:
    """An aggregate of a stream through a fixed sliding window → the aggregate that keeps panes.

    `first` and `last` are by the time of a row with panes, and by its first window in a relation; these agree
    only in order of arrival.
    """
    if type(plan) is not Aggregate or not isinstance(plan.input, Window):
        return None
    window = plan.input
    if bounds_of(window) is not None:
        return None
    if not isinstance(window.spec, Sliding) or (minds_order(plan) and not keeps_arrival_order(window)):
        return None
    return SlidingAggregate(window.input, plan.keys, plan.calls, window.spec)


RULES: Final[tuple[Rule, ...]] = (
    Rule("merge selections", selections.merge, Select),
    Rule("selection below projection", selections.below_projection, Select),
    Rule("selection below union", selections.below_union, Select),
    Rule("selection below window", selections.below_window, Select),
    Rule("selection below granularity", selections.below_granularity, Select),
    Rule("selection below distinct", selections.below_content, Select),
    Rule("selection below except", selections.below_except, Select),
    Rule("selection below aggregate", selections.below_aggregate, Select),
    Rule("selection below stream", selections.below_stream, Select),
    Rule("selection into join", joins.selection_into, Select),
    Rule("conditions below join", joins.conditions_below, Join),
    Rule("selection below outer join", joins.selection_into_outer, Select),
    Rule("conditions below outer join", joins.conditions_below_outer, OuterJoin),
    Rule("remove projection", projections.remove, Project),
    Rule("merge projections", projections.merge, Project),
    Rule("projection below window", projections.below_window, Project),
    Rule("projection below union", projections.below_union, Project),
    Rule("projection below stream", projections.below_stream, Project),
    Rule("panes", choose_panes, Aggregate),
    Rule("nothing to remember", remember_nothing, IStream),
    Rule("report once", report_once, RStream),
    Rule("order joins", order_joins, whole=True),
    Rule("prune columns", projections.prune, whole=True),
)
