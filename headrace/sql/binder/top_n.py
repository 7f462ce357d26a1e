"""The first rows in an order: `ROW_NUMBER() OVER (…)`, QUALIFY, and `ORDER BY … LIMIT n`.

The SELECT list is computed first, together with the order and partition keys; then the first rows are taken,
and finally the added keys are removed. A row number without a bound gets one from the query around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from headrace.expressions import Between, Column, Comparison, Expression, Literal
from headrace.expressions.substitution import conjunction, conjuncts
from headrace.plan.nodes.core import Plan, Project, Select
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.trees import everywhere, walk
from headrace.sql.binder.scalars import chain
from headrace.sql.binder.scope import Scope, fresh
from headrace.sql.binder.select_list import Listed, projected
from headrace.sql.parser.parse import check_read, refuse_part
from headrace.sql.place import Code, fail

BOUNDED: Final = "limit it: QUALIFY ROW_NUMBER() OVER (…) <= 10, or WHERE number <= 10 in an outer query"
BOTH: Final = "write ORDER BY … LIMIT n"


@dataclass(frozen=True)
class Ranking:
    """Takes the first rows of the columns `inner`, then projects them to `outer`.

    `last`: this is LIMIT, which comes after DISTINCT; QUALIFY comes before it.
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
        """Whether rows are ordered or partitioned by columns that are not in the SELECT list."""
        return len(self.inner) > len(self.outer) - (self.rank is not None)

    def of(self, plan: Plan) -> Plan:
        """The first rows of `plan`, which has the columns of `inner`."""
        top = TopN(plan, self.keys, self.order, self.count, self.rank)
        return projected(top, [(name, Column(name)) for name in self.outer])


def read_ranking(node: exp.Select, columns: list[Listed], scope: Scope) -> Ranking | None:
    """The first rows that a SELECT asks for with OVER, QUALIFY or LIMIT; None if it wants all rows."""
    numbers = [each for each in columns if is_row_number(each.node)]
    qualify, order, limit = (node.args.get(part) for part in ("qualify", "order", "limit"))
    if not numbers and not (qualify or order or limit):
        return None
    if order is not None or limit is not None:
        return _ordered(order, limit, columns, numbers, qualify, scope)
    over, count = _numbered(numbers, qualify)
    if len(numbers) > 1:
        fail(Code.OVER, "a SELECT can have only one ROW_NUMBER()", numbers[1].node, "move one to a subquery")
    ordered = over.args.get("order")
    if ordered is None:
        fail(Code.OVER, "ROW_NUMBER() needs ORDER BY", over, "write OVER (PARTITION BY k ORDER BY v DESC)")
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
    """The ranking of `ORDER BY … LIMIT n`; both clauses are required."""
    if limit is None:
        assert order is not None
        hint = f"answers come in order of time; for the first rows {BOTH}"
        fail(Code.ORDER_LIMIT, "ORDER BY needs a LIMIT", order.expressions[0].this, hint)
    if order is None:
        hint = f"{BOTH}, or use [ROWS n] for the newest rows"
        fail(Code.ORDER_LIMIT, "LIMIT needs an ORDER BY", _limit_of(limit), hint)
    if numbers or qualify is not None:
        fail(Code.OVER, "a SELECT cannot have both ROW_NUMBER() and LIMIT", order, "move one to a subquery")
    count = _whole(_limit_of(limit), "LIMIT")
    ranking = _Listing(columns, scope, aliases_first=True).ranking([], order, count, None, order)
    return replace(ranking, last=True)


def _limit_of(limit: exp.Expr) -> exp.Expr:
    """The count in a LIMIT or FETCH clause."""
    found = limit.args.get("expression") or limit
    return found if isinstance(found, exp.Expr) else limit


def is_row_number(node: exp.Expr) -> bool:
    """Whether `node` is `ROW_NUMBER() OVER (…)`."""
    return isinstance(node, exp.Window) and _is_call(node.this, "row_number")


def _is_call(node: object, name: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == name


def check_over(over: exp.Window) -> None:
    """An error for parts of OVER that CQL does not support; this function takes no frame."""
    check_read(over)
    if over.args.get("spec"):
        refuse_part(over, "spec", over.args["spec"])
    check_read(over.this)
    if over.args.get("order") is not None:
        check_read(over.args["order"])


# --------------------------------------------------------------------------------------------- QUALIFY


def _numbered(numbers: list[Listed], qualify: exp.Expr | None) -> tuple[exp.Window, int]:
    """The OVER clause that is used, and the bound on its row numbers."""
    listed = numbers[0].node if numbers else None
    count = UNLIMITED
    for condition in _conditions(qualify):
        over, bound = _bound(condition, numbers)
        if listed is not None and over != listed:
            fail(Code.OVER, "a SELECT can have only one ROW_NUMBER()", over, "move one to a subquery")
        listed, count = over, min(count, bound)
    assert isinstance(listed, exp.Window)
    if listed.this.expressions:
        fail(Code.ARGUMENTS, "ROW_NUMBER() takes no arguments", listed, "put the order into OVER")
    check_over(listed)
    return listed, count


def _conditions(qualify: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that QUALIFY joins with AND."""
    if qualify is None:
        return []
    return list(chain(qualify.this)) if isinstance(qualify.this, exp.And) else [qualify.this]


def _bound(condition: exp.Expr, numbers: list[Listed]) -> tuple[exp.Expr, int]:
    """`number <= n`, `number < n`, `number = 1` or `number BETWEEN 1 AND n`."""
    while isinstance(condition, exp.Paren):
        condition = condition.this
    over = _number(condition.this, numbers) if isinstance(condition, QUALIFIES) else None
    if over is None:
        fail(
            Code.OVER,
            "QUALIFY can only limit a ROW_NUMBER()",
            condition,
            "write QUALIFY ROW_NUMBER() OVER (…) <= 10",
        )
    if isinstance(condition, exp.Between):
        low, bound = (_whole(condition.args[end], "QUALIFY") for end in ("low", "high"))
        return over, _from_first(low, bound, condition)
    bound = _whole(condition.expression, "QUALIFY")
    if isinstance(condition, exp.EQ):
        return over, _from_first(bound, bound, condition)
    below = int(isinstance(condition, exp.LT))
    if bound == below:
        fail(Code.OVER, "no row has a number below 1", condition, "row numbers start at 1")
    return over, bound - below


QUALIFIES: Final = (exp.LTE, exp.LT, exp.EQ, exp.Between)


def _from_first(low: int, high: int, condition: exp.Expr) -> int:
    """The upper bound of a range of row numbers, which must start at 1."""
    if low != 1 or high < low:
        hint = "number the rows in a subquery and filter by the number in WHERE"
        fail(Code.OVER, "QUALIFY can only take rows from number 1 on", condition, hint)
    return high


def _number(node: exp.Expr, numbers: list[Listed]) -> exp.Expr | None:
    """The ROW_NUMBER() that `node` is, or that it refers to by the name of a column in SELECT."""
    if is_row_number(node):
        return node
    bare = isinstance(node, exp.Column) and not node.args.get("table")
    return next((n.node for n in numbers if bare and n.name.lower() == node.name.lower()), None)


def _whole(node: exp.Expr, clause: str) -> int:
    """A positive integer literal."""
    number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    if not number or len(node.name) > 18 or int(node.name) < 1:
        fail(Code.ORDER_LIMIT, f"{clause} takes a whole number, at least 1", node, "write 10, for example")
    return int(node.name)


# ------------------------------------------------------------------------------------------------ keys


class _Listing:
    """The SELECT list, extended by the keys that it does not contain."""

    def __init__(self, columns: Sequence[Listed], scope: Scope, aliases_first: bool) -> None:
        self._scope, self._aliases_first = scope, aliases_first
        self._outer = [each.name for each in columns]
        self._inner = [each for each in columns if not is_row_number(each.node)]
        self._taken = {name.lower() for name in (*self._outer, *scope.schema.names)}

    def ranking(
        self, keys: list[exp.Expr], order: exp.Order, count: int, rank: str | None, place: exp.Expr
    ) -> Ranking:
        """The ranking by these keys and this order, with all keys as columns."""
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
        """The listed column that computes a key, if there is one: by expression, name or position."""
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
        """The internal name of the input column that a listed column reads unchanged."""
        if each.star is not None:
            return each.star
        return self._scope.find(each.node) if isinstance(each.node, exp.Column) else None

    def _at_position(self, node: exp.Expr) -> Listed | None:
        """A number is a position in the SELECT list, in ORDER BY … LIMIT as in GROUP BY."""
        if not self._aliases_first or not isinstance(node, exp.Literal) or node.is_string:
            return None
        position = int(node.name) if node.name.isdecimal() and len(node.name) < 9 else 0
        if not 1 <= position <= len(self._outer):
            hint = f"SELECT has {len(self._outer)} columns, counted from 1"
            fail(
                Code.GROUP_POSITION, f"ORDER BY {node.name} is not a position in the SELECT list", node, hint
            )
        return self._inner[position - 1]


# Numbered rows and the condition around them: `WHERE number <= 10` turns ROW_NUMBER() into a top-n.
#
# Two rewrites that keep the answer: a condition on the row number becomes the limit of the top-n, and a
# row number that is not used is not computed.


UNLIMITED: Final = 2**62
"""The count of a ROW_NUMBER() that has no bound yet."""

FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def is_unlimited(plan: Plan) -> bool:
    """Whether `plan` contains a row number without a bound."""
    return any(isinstance(each, TopN) and each.count == UNLIMITED for each in walk(plan))


def is_numbered(plan: Plan) -> bool:
    """Whether `plan` contains a row number."""
    return any(isinstance(each, TopN) and each.rank for each in walk(plan))


def bounded(plan: Plan) -> Plan:
    """`plan` with conditions on row numbers as limits, and without numbers that are not used."""
    if not is_numbered(plan):
        return plan
    return everywhere(everywhere(plan, _with_bound), _without_number)


def _with_bound(plan: Plan) -> Plan:
    """Turn conditions on the row number directly above it into the limit of the top-n."""
    if not isinstance(plan, Select):
        return plan
    rank = _rank_of(plan.input)
    if rank is None:
        return plan
    conditions = conjuncts(plan.predicate)
    bounds = [_most(each, rank) for each in conditions]
    least = min((bound for bound, _ in bounds if bound is not None), default=None)
    if least is None or least < 1:
        return plan
    below = _changed(plan.input, lambda top: replace(top, count=min(top.count, least)))
    kept = [each for each, (_, done) in zip(conditions, bounds, strict=True) if not done]
    predicate = conjunction(kept)
    return below if predicate is None else Select(below, predicate)


def _most(condition: Expression, rank: str) -> tuple[int | None, bool]:
    """The greatest row number that meets a condition, if bounded, and whether all smaller ones do too."""
    number = Column(rank)
    if isinstance(condition, Between) and condition.operand == number:
        low, high = _value(condition.low), _value(condition.high)
        return high, low is not None and low <= 1
    if not isinstance(condition, Comparison) or condition.op not in FLIPPED:
        return None, False
    op, value = condition.op, _value(condition.right)
    if condition.right == number:
        op, value = FLIPPED[op], _value(condition.left)
    elif condition.left != number:
        return None, False
    if value is None or op not in ("<", "<=", "="):
        return None, False
    bound = value - 1 if op == "<" else value
    return bound, op != "=" or bound == 1


def _value(expression: Expression) -> int | None:
    """The value of an integer literal."""
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rank_of(plan: Plan) -> str | None:
    """The column that holds the row number, through projections that keep it."""
    if isinstance(plan, TopN):
        return plan.rank
    if isinstance(plan, Select):
        return _rank_of(plan.input)
    if not isinstance(plan, Project):
        return None
    below = _rank_of(plan.input)
    return next((name for name, e in plan.columns if below and e == Column(below)), None)


def _changed(plan: Plan, change: Callable[[TopN], TopN]) -> Plan:
    """`plan` with the top-n below it changed."""
    if isinstance(plan, TopN):
        return change(plan)
    return plan.with_inputs((_changed(plan.inputs[0], change),))


def _without_number(plan: Plan) -> Plan:
    """Remove the row number if a projection does not read it."""
    if not isinstance(plan, Project):
        return plan
    rank = _rank_of(plan.input)
    read = {name for _, each in plan.columns for name in each.columns()}
    return plan if rank is None or rank in read else Project(_numberless(plan.input, rank), plan.columns)


def _numberless(plan: Plan, rank: str) -> Plan:
    """`plan` without the row number, unless a condition reads it."""
    if isinstance(plan, TopN):
        return replace(plan, rank=None)
    if isinstance(plan, Select):
        if rank in plan.predicate.columns():
            return plan
        return Select(_numberless(plan.input, rank), plan.predicate)
    assert isinstance(plan, Project)
    below = _rank_of(plan.input)
    assert below is not None
    columns = tuple((name, each) for name, each in plan.columns if name != rank)
    if any(below in each.columns() for _, each in columns) or not columns:
        return plan
    return Project(_numberless(plan.input, below), columns)
