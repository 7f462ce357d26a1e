"""What a plan means under the histories of its windows and granularities (Cammert et al., §4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from headrace.plan.nodes import Granularity, Plan, Window

Histories = Mapping[Plan, Sequence[tuple[int, int]]]
"""By node of the plan: pairs (t, value); rows with time ≥ t get the value, until the next pair."""


@dataclass(frozen=True)
class Resized(Window):
    """A window whose size is the history's at the time of the row."""

    history: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Regrained(Granularity):
    """Validity rounded to the grain that the history has at the row's start."""

    history: tuple[tuple[int, int], ...] = ()


def under(plan: Plan, histories: Histories) -> Plan:
    """`plan` with its histories written into it."""
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
