"""What turns relations back into streams remembers rows only where it has to."""

from __future__ import annotations

from dataclasses import replace

from headrace.plan.cancelling import never_cancels
from headrace.plan.nodes import IStream, Plan, RStream
from headrace.plan.reporting import ticks_of


def remember_nothing(plan: Plan) -> Plan | None:
    """ISTREAM where no row comes as an equal one goes → the one that lets rows pass."""
    if not isinstance(plan, IStream) or not plan.nets or not never_cancels(plan.input):
        return None
    return replace(plan, nets=False)


def report_once(plan: Plan) -> Plan | None:
    """RSTREAM of rows that are each valid at one tick → the one that lets rows pass."""
    if not isinstance(plan, RStream) or plan.once or ticks_of(plan.input) != plan.ticks:
        return None
    return replace(plan, once=True)
