"""Aggregates over sliding windows keep panes, not rows."""

from __future__ import annotations

from headrace.plan.nodes import Aggregate, Plan, SlidingAggregate, Window
from headrace.plan.order import keeps_arrival_order
from headrace.plan.trees import minds_order
from headrace.plan.windows import Sliding


def choose(plan: Plan) -> Plan | None:
    """An aggregate of a stream through a sliding window → the aggregate that keeps panes.

    `first` and `last` go by the time of a row in panes and by its first window in a relation; those agree
    only in order of arrival.
    """
    if type(plan) is not Aggregate or not isinstance(plan.input, Window):
        return None
    window = plan.input
    if not isinstance(window.spec, Sliding) or (minds_order(plan) and not keeps_arrival_order(window)):
        return None
    return SlidingAggregate(window.input, plan.keys, plan.calls, window.spec)
