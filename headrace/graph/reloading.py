"""Gives a loaded table other rows while queries run, where the answers stay exact.

A table is the side of a join, perhaps after filters and projections. Its rows in the state of the join are
exchanged; pairs that were answered with the old rows stay as they are, and end when they would have. That is
exact if no row of the other side is withdrawn later: its pairs with the old rows could not be found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.aggregates.forest import may_withdraw
from headrace.errors import GraphError
from headrace.flow.arc import Arc
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.graph.table import Rows, TableNode
from headrace.operators.contract import Stateless
from headrace.operators.join import JoinOperator
from headrace.plan.nodes.core import Join


@dataclass(frozen=True)
class Way:
    """From a table through stateless operators to an input of a join."""

    through: tuple[Stateless, ...]
    join: JoinOperator
    input: int


def reload_table(graph: Graph, table: str, data: Rows) -> bool:
    """Exchange the rows of a table; true if they were others. HR-G025 if answers would not be exact."""
    node = graph.tables.get(table)
    if node is None:
        known = ", ".join(graph.tables) or "none"
        raise GraphError("HR-G005", "no query reads such a table", place=table, hint=f"known: {known}")
    if not node.loaded:
        node.load(data)
        return True
    batch = node.exchanged(data)
    if batch is None:
        return False
    ways = list(_ways(node, node, ()))
    for way in ways:
        rows = batch
        for operator in way.through:
            rows = operator.apply(rows)
            _skip(operator.output)
        way.join.exchange(way.input, rows)
    node.fill(batch)
    return True


def _ways(table: TableNode, before: Node | SourceNode, through: tuple[Stateless, ...]) -> Iterator[Way]:
    """The ways from a table to joins; an error if it is used in another way."""
    arc = before.operator.output if isinstance(before, Node) else before.arc
    if len(arc.readers) != sum(r.arc is arc for node in before.successors for r in node.operator.inputs):
        raise _inexact(table, "a query reads it without a join")
    for node in before.successors:
        operator = node.operator
        if isinstance(operator, JoinOperator):
            assert isinstance(node.plan, Join)
            for input, reader in enumerate(operator.inputs):
                if reader.arc is arc:
                    if may_withdraw(node.plan.inputs[1 - input]):
                        raise _inexact(table, "it is joined with rows that may be withdrawn")
                    if operator.has_closed or operator.has_shelved:
                        raise _inexact(table, "rows of its join were closed by punctuations or are on disk")
                    yield Way(through, operator, input)
        elif isinstance(operator, Stateless) and not operator.state():
            yield from _ways(table, node, (*through, operator))
        else:
            raise _inexact(table, f"{node.name} keeps state that was made from its rows")


def _inexact(table: TableNode, why: str) -> GraphError:
    return GraphError(
        "HR-G025",
        f"the table cannot be reloaded: {why}",
        place=table.name,
        hint="reset the queries that read it, so that they start with the new rows",
    )


def _skip(arc: Arc) -> None:
    """Drop what is on its way in an arc: it was made from the old rows."""
    tail = arc.base + sum(1 for _ in iter_items(arc))
    arc.reload(True, tail, [], [[tail, 0] for _ in arc.readers])


def iter_items(arc: Arc) -> Iterator[object]:
    """The items in an arc."""
    position = arc.base
    while (item := arc.item(position)) is not None:
        yield item
        position += 1
