"""The identity of a plan node: a fingerprint of what it computes, the same in every process.

State belongs to what computes it, not to a query or a file. Two nodes have the same fingerprint if the state
of one can serve the other. The fingerprint covers the node's parameters and everything below it, except:

- quality bounds, which are about how much a window may shrink;
- the width of types: a column may become wider (`headrace.state.part.goes_on`), and state is then converted;
- names of computed columns, as far as no operator above refers to them;
- columns of a stream that no operator reads;
- whether the rows of a stream have to be sorted.

The Python code of user-defined functions and aggregates is not covered, only their names and types; the
statements of an aggregate in SQL are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields
from enum import Enum
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions import Cast, Literal
from headrace.expressions.functions.rule import UserFunction
from headrace.plan.analysis.ordering import AdaptiveOrder, Expand, Order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan, Source, Table
from headrace.plan.nodes.lag import LagCall
from headrace.plan.nodes.latent import Stamp
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.quality import without_bounds
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.trees import minds_order, sources_of
from headrace.plan.nodes.user_aggregates import UserAggregate
from headrace.plan.nodes.windows import EVERY, Rows, Sliding, Unbounded
from headrace.plan.show import Span, show_node
from headrace.schema import DataType, Schema
from headrace.state.part import goes_on

Columns = tuple[str, ...]
_SMALL: Final = 18
_INPUTS: Final = frozenset(("input", "left", "right", "branches", "streams"))
_NAMES: Final = frozenset(("rank", "quality_column"))
"""Fields that name a computed column: what counts is whether there is one."""
_SHOWN: Final = frozenset(("bounds",))
"""Fields that only add columns to the result."""
PASSING: Final = (
    nodes.Select,
    nodes.Window,
    nodes.Granularity,
    nodes.ToStream,
    nodes.Distinct,
    Order,
    Expand,
)
"""Nodes whose first columns are those of their input."""
BY_POSITION: Final = (nodes.ToStream, nodes.Distinct, nodes.Granularity, Order, Expand, Stamp, nodes.Union)
"""Nodes without parameters that name a column; nothing in their state depends on names."""


_ADDED: Final = (
    (nodes.Granularity, "ticks", EVERY),
    (Sliding, "least", None),
    (Rows, "least", None),
)
"""Parameters that were added after the first checkpoints, and their defaults."""


def fingerprint(plan: Plan) -> str:
    """The fingerprint of a node and all below it."""
    return _fingerprint(without_bounds(plan), {})


def _fingerprint(plan: Plan, known: dict[Plan, str]) -> str:
    if plan not in known:
        own = [type(plan).__name__, _parameters(plan), _inputs(plan, known)]
        text = json.dumps(own, sort_keys=True, ensure_ascii=True)
        known[plan] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return known[plan]


def _parameters(plan: Plan) -> list[Any]:
    """The node's own parameters, as plain data."""
    if isinstance(plan, AdaptiveOrder):
        return [fingerprint(plan.top)]
    if isinstance(plan, Source):
        return [plan.name, plan.time.value, plan.stamp, plan.is_relation]
    if isinstance(plan, Table):
        return [plan.name, "changes"] if plan.changes else [plan.name]
    scope = pa.schema([field for below in plan.inputs for field in below.schema])
    if isinstance(plan, nodes.Project):
        return [_plain(expression, scope) for _, expression in plan.columns]
    own = [each for each in fields(plan) if each.name not in _INPUTS | _SHOWN]
    return [[each.name, _field(plan, each.name, scope)] for each in own if not _is_absent(plan, each.name)]


def _is_absent(of: Any, name: str) -> bool:
    """Whether a parameter that a later version added has its default: fingerprints stay what they were."""
    return any(
        isinstance(of, kind) and name == added and getattr(of, name) == default
        for kind, added, default in _ADDED
    )


def _field(plan: Plan, name: str, scope: Schema) -> Any:
    value = getattr(plan, name)
    return value is not None if name in _NAMES else _plain(value, scope)


def _inputs(plan: Plan, known: dict[Plan, str]) -> list[Any]:
    """For each input its fingerprint, and the columns on which the node's state depends."""
    found: list[Any] = []
    for below in map(_unsorted, plan.inputs):
        tokens = _tokens(below)
        read = _read(plan, below)
        columns = [
            [*([] if isinstance(plan, BY_POSITION) else [field.name]), token, _family(field.type)]
            for field, token in zip(below.schema, tokens, strict=True)
            if field.name in read
        ]
        found.append([_fingerprint(below, known), columns])
    return found


def _unsorted(plan: Plan) -> Plan:
    """The plan below a sort: whether rows have to be sorted is no matter for what is above."""
    if isinstance(plan, AdaptiveOrder):
        return plan.top
    return plan.input if isinstance(plan, Order) else plan


def _read(plan: Plan, below: Plan) -> frozenset[str]:
    """The columns of an input that matter: those that an expression or aggregate reads, or all."""
    names = frozenset(below.schema.names)
    if isinstance(plan, nodes.Select):
        return names & plan.predicate.columns()
    if isinstance(plan, nodes.Project):
        return names & frozenset(name for _, each in plan.columns for name in each.columns())
    if isinstance(plan, nodes.Aggregate) and not minds_order(plan):
        return names & frozenset((*plan.keys, *(name for call in plan.calls for name in call.columns)))
    if isinstance(plan, (Order, Expand, Stamp)):
        return frozenset()
    if isinstance(plan, nodes.Window) and not isinstance(plan.spec, Rows):
        return frozenset()
    return names


def _tokens(plan: Plan) -> Columns:
    """What the columns of a plan are: columns of a stream by name, computed ones by position."""
    plan = plan.top if isinstance(plan, AdaptiveOrder) else plan
    count = len(plan.schema)
    if isinstance(plan, (Source, Table)):
        return tuple(plan.schema.names)
    below = _tokens(plan.inputs[0]) if isinstance(plan, PASSING) else ()
    return (*below, *(f"#{i}" for i in range(len(below), count)))


def _plain(value: Any, scope: Schema) -> Any:
    """A parameter as plain data that does not depend on the process."""
    if isinstance(value, Literal):
        return ["Literal", _family(value.of), str(value.value)]
    if isinstance(value, Cast) and _only_widens(value, scope):
        return _plain(value.operand, scope)
    if isinstance(value, (UserAggregate, UserFunction)):
        code = getattr(getattr(value, "definition", None), "identity", None)
        own = [value.name, _plain(value.arguments, scope), getattr(value, "ordered", None)]
        return own if code is None else [*own, code]
    if isinstance(value, pa.DataType):
        return _family(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (tuple, list, frozenset, set)):
        items: Iterable[Any] = value if isinstance(value, (tuple, list)) else sorted(value)
        return [_plain(each, scope) for each in items]
    if isinstance(value, (nodes.AggregateCall, LagCall)):
        own = [each.name for each in fields(value) if each.name != "name"]
        return [type(value).__name__, *(_plain(getattr(value, name), scope) for name in own)]
    if hasattr(value, "__dataclass_fields__"):
        return [
            type(value).__name__,
            *(
                _plain(getattr(value, f.name), scope)
                for f in fields(value)
                if f.compare and not _is_absent(value, f.name)
            ),
        ]
    assert value is None or isinstance(value, (bool, int, float, str)), type(value)
    return value


def _only_widens(cast: Cast, scope: Schema) -> bool:
    """Whether a cast changes only the width of a column."""
    if len(set(scope.names)) != len(scope.names):
        return False
    return goes_on(cast.operand.type(scope), cast.to)


def _family(of: DataType) -> str:
    """A type without its width, as far as state for a narrow one serves a wider one."""
    if pt.is_signed_integer(of):
        return "integer"
    if of in (pa.float32(), pa.float64()):
        return "float"
    if pt.is_decimal128(of):
        return f"decimal({'few' if of.precision <= _SMALL else 'many'}, {of.scale})"
    return str(of)


# What a person reads about a node, and what may begin empty.


def label(plan: Plan, span: Span = str) -> str:
    """A node in words, with the streams below it."""
    streams = ", ".join(dict.fromkeys(each.name for each in sources_of(plan)))
    return f"{show_node(plan, span)} on {streams}" if streams else show_node(plan, span)


def stays_open(plan: Plan) -> bool:
    """Whether rows of a relation leave only by withdrawal, never at an end that was known when they came.

    ISTREAM and DSTREAM of such a relation remember nothing from one instant to the next.
    """
    if type(plan) in (nodes.Aggregate, nodes.Distinct, nodes.Except, TopN, Table):
        return True
    if isinstance(plan, nodes.Window):
        return isinstance(plan.spec, (Rows, Unbounded))
    through = (nodes.Select, nodes.Project, nodes.Union, nodes.Join, OuterJoin)
    return isinstance(plan, through) and all(map(stays_open, plan.inputs))


def remembers_nothing(plan: Plan) -> bool:
    """Whether a node that waits keeps nothing once it has answered for all rows that came."""
    return isinstance(plan, (nodes.IStream, nodes.DStream, Changelog)) and stays_open(plan.input)
