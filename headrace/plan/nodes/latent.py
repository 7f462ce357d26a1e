"""Latent time: rows have no time until an operator needs one (Bai et al. 2007, §5)."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.core import Plan, Project, Select, Source, TimeKind, Unary, Union

TIMELESS = (Select, Project, Union)


@dataclass(frozen=True)
class Stamp(Unary):
    """Rows of a latent stream, stamped with the instant at which they arrive here."""


def is_latent(plan: Plan) -> bool:
    """Whether the rows of `plan` have no time yet: all its sources are latent and no operator needed one."""
    if isinstance(plan, Source):
        return plan.time is TimeKind.LATENT
    return isinstance(plan, TIMELESS) and all(is_latent(i) for i in plan.inputs)


def with_stamps(plan: Plan) -> Plan:
    """`plan` with a stamp wherever latent rows reach an operator that needs times."""
    inputs = tuple(with_stamps(i) for i in plan.inputs)
    plan = plan.with_inputs(inputs)
    if is_latent(plan) or isinstance(plan, Stamp):
        return plan
    return plan.with_inputs(tuple(Stamp(i) if is_latent(i) else i for i in inputs))
