"""Gives a loaded table other rows while queries run, where the answers stay exact.

A table that was declared to change (`Table.changes`) changes at an instant: its old rows end there, and its
new rows start there. Rows that are in both stay, so the cost follows the change. The instant is later than
everything that was answered, and the same in all shards of a query, because it follows from the streams.

Any other table is planned as if it never changed. It is the side of a join, perhaps after filters and
projections. Its rows in the state of the join are exchanged; pairs that were answered with the old rows stay
as they are, and end when they would have. That is exact if no row of the other side is withdrawn later: its
pairs with the old rows could not be found again.
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
from headrace.operators.contract import Stateless, Waiting
from headrace.operators.join import JoinOperator
from headrace.plan.nodes.core import Join, Source, Table
from headrace.plan.nodes.trees import walk
from headrace.time.timestamp import BEGINNING, MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Way:
    """From a table through stateless operators to an input of a join."""

    through: tuple[Stateless, ...]
    join: JoinOperator
    input: int


def table_named(graph: Graph, name: str) -> TableNode:
    """The node of a table; an error if no query reads it."""
    node = graph.tables.get(name)
    if node is None:
        known = ", ".join(graph.tables) or "none"
        raise GraphError("HR-G005", "no query reads such a table", place=name, hint=f"known: {known}")
    return node


def changes(graph: Graph, table: TableNode) -> bool:
    """Whether every query that reads a table was planned for a table that changes."""
    plans = (each for query in graph.sinks for each in walk(graph.plan_of(query)))
    return all(each.changes for each in plans if isinstance(each, Table) and each.name == table.name)


def change_table(graph: Graph, node: TableNode, data: Rows, at: int | None, now: int) -> int | None:
    """Give a table these rows from an instant on, or as soon as possible; None if it has them.

    Returns the instant.
    """
    gone, come = node.changed(data)
    if not gone.num_rows and not come.num_rows:
        return None
    since = max(_soonest(graph, node, now), node.last_change, MIN_TIME if at is None else at)
    if since < MAX_TIME:
        node.change(gone, come, since)
        _pass_through(node)
    return since


def _pass_through(before: TableNode | Node) -> None:
    """Move changes to the operators that wait for their instant: a table's heartbeat is ahead of them."""
    for node in before.successors:
        operator = node.operator
        if isinstance(operator, Stateless):
            while operator.more:
                operator.execute(operator.inputs[0].rows + 1)
            _pass_through(node)


def compact(table: TableNode) -> bool:
    """Forget changes of a table that every operator has passed, if that is due; true if it was done."""
    passed = min((each.frontier for each in _waiting(table)), default=MAX_TIME)
    return table.last_change <= passed and table.compact()


def _soonest(graph: Graph, table: TableNode, now: int) -> int:
    """The first instant that no operator has answered for, and that none of the streams can have passed.

    An operator may have taken rows one tick past its frontier.
    """
    sources: list[SourceNode] = []
    for query in graph.sinks:
        leaves = [each for each in walk(graph.plan_of(query)) if isinstance(each, (Source, Table))]
        if any(isinstance(each, Table) and each.name == table.name for each in leaves):
            sources += [graph.sources[each.name] for each in leaves if isinstance(each, Source)]
    known = [max(each.known(now), each.arc.heartbeat) for each in sources if not each.ended]
    answered = [each.frontier for each in _waiting(table)]
    return min(max([BEGINNING, *known, *answered]) + 2, MAX_TIME)


def _waiting(table: TableNode) -> list[Waiting]:
    """The operators that get rows from a table, through others, and wait for heartbeats."""
    found: list[Node] = []
    front = list(table.successors)
    while front:
        node = front.pop()
        if node not in found:
            found.append(node)
            front += node.successors
    return [node.operator for node in found if isinstance(node.operator, Waiting)]


def reload_table(graph: Graph, node: TableNode, data: Rows) -> bool:
    """Exchange the rows of a table; true if they were others. HR-G025 if answers would not be exact."""
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
        if isinstance(operator, JoinOperator) and isinstance(node.plan, Join):
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
