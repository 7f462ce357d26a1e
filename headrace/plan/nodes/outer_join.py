"""Joins in which a row counts that has no partner: left, full, semi and anti join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.expressions import Expression
from headrace.plan.nodes.core import Equality, Pairing, Plan
from headrace.schema import Schema


class JoinKind(Enum):
    """What a join answers. A right join is a left join of the same inputs, exchanged."""

    INNER = "inner"
    LEFT = "left"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def has_pairs(self) -> bool:
        """Whether the answer has the columns of both sides."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)

    @property
    def followed(self) -> tuple[int, ...]:
        """The inputs for whose rows it matters whether they have a partner."""
        return FOLLOWED[self]


FOLLOWED = {
    JoinKind.INNER: (),
    JoinKind.LEFT: (0,),
    JoinKind.FULL: (0, 1),
    JoinKind.SEMI: (0,),
    JoinKind.ANTI: (0,),
}


@dataclass(frozen=True)
class OuterJoin(Pairing):
    """At each instant, the left, full, semi or anti join of the rows that are valid then.

    - `LEFT`: the pairs, and each left row with nulls while it has no partner;
    - `FULL`: the same for the rows of both sides;
    - `SEMI`: each left row while it has a partner, once however many it has (`EXISTS`);
    - `ANTI`: each left row while it has none (`NOT EXISTS`).
    """

    kind: JoinKind = JoinKind.LEFT

    @property
    def lasting(self) -> tuple[Plan, ...]:
        """The inputs that decide how long a row of the answer is valid: as long as a row of one of them."""
        return tuple(self.inputs[i] for i in self.kind.followed)

    @property
    def schema(self) -> Schema:
        return self.pair_schema if self.kind.has_pairs else self.left.schema


def outer_joined(
    kind: JoinKind,
    left: Plan,
    right: Plan,
    keys: Sequence[Equality[str]],
    residual: Expression | None = None,
) -> OuterJoin:
    """The outer, semi or anti join of two relations on pairs of their columns."""
    safe = tuple(i for i, each in enumerate(keys) if each.null_safe)
    names = tuple(e.left for e in keys), tuple(e.right for e in keys)
    return OuterJoin(left, right, *names, residual, safe, kind)
