"""Moves the conditions of a join: to one side, to both, into the keys, or into the residual."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.expressions import Column, Comparison, Expression
from headrace.expressions.substitution import conjunction, conjuncts, is_movable, respects_equality
from headrace.expressions.types import family
from headrace.plan.nodes.core import EQUALITIES, Equality, Join, Pairing, Plan, Select, joined
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin, outer_joined
from headrace.plan.rewrite.selections import selected


@dataclass
class _Conditions:
    """Where each condition goes."""

    left: list[Expression] = field(default_factory=list)
    right: list[Expression] = field(default_factory=list)
    keys: list[Equality[str]] = field(default_factory=list)
    residual: list[Expression] = field(default_factory=list)


def selection_into(plan: Plan) -> Plan | None:
    """σp(x ⋈ y) → σ(x) ⋈ σ(y), where a condition that reads both sides becomes a key or residual."""
    if not (isinstance(plan, Select) and isinstance(plan.input, Join)):
        return None
    parts = conjuncts(plan.predicate)
    down = [each for each in parts if is_movable(each)]
    if not down:
        return None
    join = plan.input
    made = replace(join, residual=conjunction([*conjuncts(join.residual), *down]))
    return selected(conditions_below(made) or made, [each for each in parts if each not in down])


def conditions_below(plan: Plan) -> Plan | None:
    """σp(x) ⋈q y for x ⋈p∧q y: a condition on one side moves to that side, equal columns become keys.

    A condition on a key also holds for the key of the other side, and is checked there too.
    """
    if not isinstance(plan, Join) or plan.residual is None:
        return None
    found = _placed(plan)
    if not (found.left or found.right or found.keys):
        return None
    pairs = [*plan.equalities, *found.keys]
    there, back = _twins(plan, pairs)
    left = [*found.left, *_across(found.right, back, plan.right)]
    right = [*found.right, *_across(found.left, there, plan.left)]
    return joined(selected(plan.left, left), selected(plan.right, right), pairs, conjunction(found.residual))


def selection_into_outer(plan: Plan) -> Plan | None:
    """σp(x ⟕ y) → σp(x) ⟕ y for a condition on x, also for semi and anti joins.

    Not for a condition on y, which is null where a row of x is alone; and not for a full join.
    """
    if not (isinstance(plan, Select) and isinstance(plan.input, OuterJoin)):
        return None
    join, parts = plan.input, conjuncts(plan.predicate)
    left = set(join.left.schema.names)
    down = [each for each in parts if is_movable(each) and each.columns() <= left]
    if join.kind is JoinKind.FULL or not down:
        return None
    stay = [each for each in parts if each not in down]
    return selected(replace(join, left=selected(join.left, down)), stay)


def conditions_below_outer(plan: Plan) -> Plan | None:
    """(x ⟕p∧q y) → x ⟕q σp(y) for a condition on y: a row that fails it is nobody's partner.

    A condition on x decides in a semi join which rows can be in the answer, and moves as well. In a left
    join, x has its rows whether they meet it or not; in a full join, so has y.
    """
    if not isinstance(plan, OuterJoin) or plan.residual is None or plan.kind is JoinKind.FULL:
        return None
    found = _placed(plan)
    pairs, stay = [*plan.equalities, *found.keys], list(found.residual)
    there, _ = _twins(plan, pairs)
    left = found.left if plan.kind is JoinKind.SEMI else []
    if plan.kind is not JoinKind.SEMI:
        stay += found.left
    if not (left or found.right or found.keys):
        return None
    right = [*found.right, *_across(left, there, plan.left)]
    sides = selected(plan.left, left), selected(plan.right, right)
    return outer_joined(plan.kind, *sides, pairs, conjunction(stay))


def _placed(plan: Pairing) -> _Conditions:
    """Sort the conditions of the residual: for one side, for the keys, or for neither."""
    left, right = set(plan.left.schema.names), set(plan.right.schema.names)
    found = _Conditions()
    for each in conjuncts(plan.residual):
        columns = each.columns()
        pair = _key(each, plan, left)
        if not is_movable(each):
            found.residual.append(each)
        elif columns <= left:
            found.left.append(each)
        elif columns <= right:
            found.right.append(each)
        elif pair is not None:
            found.keys.append(pair)
        else:
            found.residual.append(each)
    return found


def _key(condition: Expression, plan: Pairing, left: set[str]) -> Equality[str] | None:
    """The columns, one from each side and of one type, that a condition sets equal."""
    if not isinstance(condition, Comparison) or condition.op not in EQUALITIES:
        return None
    one, other = condition.left, condition.right
    if not isinstance(one, Column) or not isinstance(other, Column):
        return None
    if (one.name in left) == (other.name in left):
        return None
    a, b = (one.name, other.name) if one.name in left else (other.name, one.name)
    of = plan.left.schema.field(a).type
    if of != plan.right.schema.field(b).type or family(of) not in HASHED:
        return None
    return Equality(a, b, EQUALITIES[condition.op])


HASHED = frozenset({"boolean", "integer", "float", "string", "date", "timestamp"})


def _twins(plan: Pairing, pairs: list[Equality[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """From each key to the key of the other side, if both have the same type."""
    left, right = plan.left.schema, plan.right.schema
    same = [(a, b) for a, b, _ in pairs if left.field(a).type == right.field(b).type]
    return dict(reversed(same)), {b: a for a, b in reversed(same)}


def _across(conditions: list[Expression], twins: dict[str, str], plan: Plan) -> list[Expression]:
    """Conditions that read only keys, as conditions on the other side."""
    keys = [each for each in conditions if each.columns() and each.columns() <= twins.keys()]
    return [each.rename(twins) for each in keys if respects_equality(each, plan.schema)]
