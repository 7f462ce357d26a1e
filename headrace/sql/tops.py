"""The first rows by an order: `ROW_NUMBER() OVER (…)`, QUALIFY, and `ORDER BY … LIMIT n`.

What SELECT lists is computed first, with what the rows are ordered and partitioned by beside it; the first
rows are taken of that, and then only the list is left. A number without a bound is bounded by the query
around it (`headrace.sql.rank_bounds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from headrace.expressions import Column
from headrace.plan.nodes import Plan
from headrace.plan.top import SortKey, TopN
from headrace.sql.codes import Code
from headrace.sql.columns import Listed, projected
from headrace.sql.place import fail
from headrace.sql.rank_bounds import UNLIMITED
from headrace.sql.reading import check_read
from headrace.sql.scalars import chain
from headrace.sql.scope import Scope, fresh

BOUNDED: Final = "bound it: QUALIFY ROW_NUMBER() OVER (…) <= 10, or WHERE number <= 10 around it"
BOTH: Final = "write ORDER BY … LIMIT n together"


@dataclass(frozen=True)
class Ranking:
    """`inner` is computed of the rows, the first rows are taken of it, `outer` is what is left of them.

    `last`: it is LIMIT, which comes after DISTINCT; QUALIFY comes before it.
    """

    inner: list[Listed]
    outer: list[str]
    keys: tuple[str, ...]
    order: tuple[SortKey, ...]
    count: int
    rank: str | None
    place: exp.Expr
    last: bool = False

    @property
    def hides(self) -> bool:
        """Whether rows are told apart by what is not listed."""
        return len(self.inner) > len(self.outer) - (self.rank is not None)

    def of(self, plan: Plan) -> Plan:
        """The first rows of `plan`, which has the columns of `inner`."""
        top = TopN(plan, self.keys, self.order, self.count, self.rank)
        return projected(top, [(name, Column(name)) for name in self.outer])


def read_ranking(node: exp.Select, columns: list[Listed], scope: Scope) -> Ranking | None:
    """What a SELECT asks for by OVER, QUALIFY or LIMIT; None if it wants all rows."""
    numbers = [each for each in columns if is_row_number(each.node)]
    qualify, order, limit = (node.args.get(part) for part in ("qualify", "order", "limit"))
    if not numbers and not (qualify or order or limit):
        return None
    if order is not None or limit is not None:
        return _ordered(order, limit, columns, numbers, qualify, scope)
    over, count = _numbered(numbers, qualify)
    if len(numbers) > 1:
        fail(Code.OVER, "one ROW_NUMBER() in a SELECT", numbers[1].node, "number again in a subquery")
    ordered = over.args.get("order")
    if ordered is None:
        fail(Code.OVER, "ROW_NUMBER() needs an order", over, "OVER (PARTITION BY k ORDER BY v DESC)")
    rank = numbers[0].name if numbers else None
    listing = _Listing(columns, scope, aliases_first=False)
    return listing.ranking(over.args.get("partition_by") or [], ordered, count, rank, over)


def _ordered(
    order: exp.Order | None,
    limit: exp.Expr | None,
    columns: list[Listed],
    numbers: list[Listed],
    qualify: exp.Expr | None,
    scope: Scope,
) -> Ranking:
    if limit is None:
        assert order is not None
        hint = f"answers come in order of time; {BOTH} for the first rows"
        fail(Code.ORDER_LIMIT, "ORDER BY without LIMIT", order.expressions[0].this, hint)
    if order is None:
        hint = f"{BOTH}; [ROWS n] keeps the newest rows"
        fail(Code.ORDER_LIMIT, "LIMIT without ORDER BY", _limit_of(limit), hint)
    if numbers or qualify is not None:
        fail(Code.OVER, "ROW_NUMBER() and LIMIT in one SELECT", order, "limit a subquery")
    count = _whole(_limit_of(limit), "LIMIT")
    ranking = _Listing(columns, scope, aliases_first=True).ranking([], order, count, None, order)
    return replace(ranking, last=True)


def _limit_of(limit: exp.Expr) -> exp.Expr:
    found = limit.args.get("expression") or limit
    return found if isinstance(found, exp.Expr) else limit


def is_row_number(node: exp.Expr) -> bool:
    """Whether `node` is `ROW_NUMBER() OVER (…)`."""
    return isinstance(node, exp.Window) and _is_call(node.this, "row_number")


def _is_call(node: object, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name


def check_over(over: exp.Window) -> None:
    """An error for what may stand in OVER but is not read."""
    check_read(over)
    check_read(over.this)
    if over.args.get("order") is not None:
        check_read(over.args["order"])


# --------------------------------------------------------------------------------------------- QUALIFY


def _numbered(numbers: list[Listed], qualify: exp.Expr | None) -> tuple[exp.Window, int]:
    """The OVER that is meant, and the bound of its numbers."""
    listed = numbers[0].node if numbers else None
    count = UNLIMITED
    for condition in _conditions(qualify):
        over, bound = _bound(condition, numbers)
        if listed is not None and over != listed:
            fail(Code.OVER, "one ROW_NUMBER() in a SELECT", over, "number again in a subquery")
        listed, count = over, min(count, bound)
    assert isinstance(listed, exp.Window)
    if listed.this.expressions:
        fail(Code.ARGUMENTS, "ROW_NUMBER() takes no argument", listed, "the order stands in OVER")
    check_over(listed)
    return listed, count


def _conditions(qualify: exp.Expr | None) -> list[exp.Expr]:
    if qualify is None:
        return []
    return list(chain(qualify.this)) if isinstance(qualify.this, exp.And) else [qualify.this]


def _bound(condition: exp.Expr, numbers: list[Listed]) -> tuple[exp.Expr, int]:
    """`number <= n`, `number < n`, `number = 1` or `number BETWEEN 1 AND n`."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    over = _number(condition.this, numbers) if isinstance(condition, QUALIFIES) else None
    if over is None:
        fail(Code.OVER, "QUALIFY bounds a ROW_NUMBER()", condition, "QUALIFY ROW_NUMBER() OVER (…) <= 10")
    if isinstance(condition, exp.Between):
        low, bound = (_whole(condition.args[end], "QUALIFY") for end in ("low", "high"))
        return over, _from_first(low, bound, condition)
    bound = _whole(condition.expression, "QUALIFY")
    if isinstance(condition, exp.EQ):
        return over, _from_first(bound, bound, condition)
    below = int(isinstance(condition, exp.LT))
    if bound == below:
        fail(Code.OVER, "no row has a number below 1", condition, "numbers begin with 1")
    return over, bound - below


QUALIFIES: Final = (exp.LTE, exp.LT, exp.EQ, exp.Between)


def _from_first(low: int, high: int, condition: exp.Expr) -> int:
    if low != 1 or high < low:
        hint = "number the rows in a subquery and choose among the numbers in WHERE"
        fail(Code.OVER, "QUALIFY takes rows from the first on", condition, hint)
    return high


def _number(node: exp.Expr, numbers: list[Listed]) -> exp.Expr | None:
    """The ROW_NUMBER() that `node` is, or that a column of SELECT named so is."""
    if is_row_number(node):
        return node
    bare = isinstance(node, exp.Column) and not node.args.get("table")
    return next((n.node for n in numbers if bare and n.name.lower() == node.name.lower()), None)


def _whole(node: exp.Expr, clause: str) -> int:
    number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    if not number or len(node.name) > 18 or int(node.name) < 1:
        fail(Code.ORDER_LIMIT, f"{clause} takes a whole number, at least 1", node, f"{clause} … 10")
    return int(node.name)


# ------------------------------------------------------------------------------------------------ keys


class _Listing:
    """What SELECT lists, to which the keys are added that it does not list."""

    def __init__(self, columns: Sequence[Listed], scope: Scope, aliases_first: bool) -> None:
        self._scope, self._aliases_first = scope, aliases_first
        self._outer = [each.name for each in columns]
        self._inner = [each for each in columns if not is_row_number(each.node)]
        self._taken = {name.lower() for name in (*self._outer, *scope.schema.names)}

    def ranking(
        self, keys: list[exp.Expr], order: exp.Order, count: int, rank: str | None, place: exp.Expr
    ) -> Ranking:
        check_read(order)
        by = tuple(dict.fromkeys(self._column(each) for each in keys))
        sorted_by = tuple(self._sort_key(each) for each in order.expressions)
        return Ranking(self._inner, self._outer, by, sorted_by, count, rank, place)

    def _sort_key(self, node: exp.Expr) -> SortKey:
        if not isinstance(node, exp.Ordered):
            return SortKey(self._column(node))
        check_read(node)
        return SortKey(
            self._column(node.this), bool(node.args.get("desc")), bool(node.args.get("nulls_first"))
        )

    def _column(self, node: exp.Expr) -> str:
        """The listed column that holds a key; a hidden one if none does."""
        while isinstance(node, exp.Paren):
            node = node.this
        known = self._known(node)
        if known is None:
            known = Listed(fresh("key", self._taken), node)
            self._inner = [*self._inner, known]
        return known.name

    def _known(self, node: exp.Expr) -> Listed | None:
        same = next((each for each in self._inner if each.star is None and each.node == node), None)
        if same is not None or not isinstance(node, exp.Column):
            return same or self._at_position(node)
        named = None
        if not node.args.get("table"):
            named = next((e for e in self._inner if e.name.lower() == node.name.lower()), None)
        if named is not None and self._aliases_first:
            return named
        found = self._scope.find(node)
        if found is None:
            return named
        return next((each for each in self._inner if self._reads(each) == found), None)

    def _reads(self, each: Listed) -> str | None:
        if each.star is not None:
            return each.star
        return self._scope.find(each.node) if isinstance(each.node, exp.Column) else None

    def _at_position(self, node: exp.Expr) -> Listed | None:
        """A number is a position in the SELECT list, after ORDER BY … LIMIT as after GROUP BY."""
        if not self._aliases_first or not isinstance(node, exp.Literal) or node.is_string:
            return None
        position = int(node.name) if node.name.isdecimal() and len(node.name) < 9 else 0
        if not 1 <= position <= len(self._outer):
            hint = f"SELECT lists {len(self._outer)} columns"
            fail(Code.GROUP_POSITION, f"ORDER BY {node.name}: no such column", node, hint)
        return self._inner[position - 1]
