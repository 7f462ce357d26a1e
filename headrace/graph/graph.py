"""The query graph: plans of all queries as one graph, equal sub-plans once (`design.md` §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.errors import GraphError
from headrace.flow.arc import Arc
from headrace.graph.node import Node
from headrace.graph.quality import Quality
from headrace.graph.sink import Sink
from headrace.graph.source import SourceNode
from headrace.graph.tablenode import TableNode
from headrace.operators.contract import Operator
from headrace.operators.table import build
from headrace.plan.check import check
from headrace.plan.latent import with_stamps
from headrace.plan.nodes import Plan, Source, Table
from headrace.plan.ordering import Disorder, is_disordered, place_orders
from headrace.plan.quality import without_bounds


class Graph:
    """Sources, operator nodes and sinks; grows and shrinks while it runs.

    A new query shares a node with an equal plan if nothing that came before it is held in that node or on
    the way to it; otherwise it gets its own, so that it sees exactly the rows that come after it was added.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.sources: dict[str, SourceNode] = {}
        self.tables: dict[str, TableNode] = {}
        self.nodes: list[Node] = []
        self.sinks: dict[str, Sink] = {}
        self._roots: dict[str, Plan] = {}
        self._home: dict[Plan, list[Node]] = {}
        self.quality = Quality()
        self._now = now
        self._next_id = 0

    def declare(self, plan: Source) -> SourceNode:
        """The source of a stream, made on first mention."""
        self._refuse_as_both(plan.name, self.tables)
        known = self.sources.get(plan.name)
        if known is None:
            known = self.sources[plan.name] = SourceNode(plan)
        elif not known.agrees(plan):
            raise GraphError(
                "HR-G001",
                "a stream of this name has other columns or another kind of time",
                place=plan.name,
                hint="declare a stream once and use it in every query",
            )
        known.stamp = known.stamp or plan.stamp
        return known

    def declare_table(self, plan: Table) -> TableNode:
        """The node of a table, made on first mention."""
        self._refuse_as_both(plan.name, self.sources)
        known = self.tables.get(plan.name)
        if known is None:
            known = self.tables[plan.name] = TableNode(plan)
        elif known.schema.names != plan.schema.names or known.schema.types != plan.schema.types:
            raise GraphError(
                "HR-G001",
                "a table of this name has other columns",
                place=plan.name,
                hint="declare a table once and use it in every query",
            )
        return known

    @staticmethod
    def _refuse_as_both(name: str, others: Mapping[str, SourceNode]) -> None:
        if name in others:
            raise GraphError(
                "HR-G014", "a stream and a table have the same name", place=name, hint="rename one of them"
            )

    def add(self, query: str, plan: Plan) -> None:
        """Add a query under a name."""
        if query in self.sinks:
            raise GraphError(
                "HR-G002", "a query of this name is running", place=query, hint="remove it, or rename"
            )
        check(plan)
        self._declare_all(plan)
        placed = place_orders(with_stamps(plan), self._disorder())
        self.sinks[query] = Sink(query, self._arc(placed, {}))
        self._roots[query] = placed
        if not isinstance(placed, (Source, Table)):
            self.quality.claim(query, plan, placed, self._root(query))
        self._count_sinks()

    def _disorder(self) -> Disorder:
        loose = [s for s in self.sources.values() if s.rules.disordered]
        admitted = frozenset(s.name for s in loose if s.rules.enforce == "admit")
        return Disorder(frozenset(s.name for s in loose), admitted)

    def _declare_all(self, plan: Plan) -> None:
        if isinstance(plan, Source):
            self.declare(plan)
        if isinstance(plan, Table):
            self.declare_table(plan)
        for below in plan.inputs:
            self._declare_all(below)

    def remove(self, query: str) -> None:
        """Remove a query and every node that no other query reads."""
        if query not in self.sinks:
            raise GraphError(
                "HR-G003", "no such query", place=query, hint=f"running: {', '.join(self.sinks) or 'none'}"
            )
        self.sinks.pop(query).close()
        del self._roots[query]
        self.quality.release(query)
        for node in reversed(self.nodes[:]):
            if not node.operator.output.readers:
                self._detach(node)
        self._count_sinks()

    def _detach(self, node: Node) -> None:
        self.nodes.remove(node)
        self._home[without_bounds(node.plan)].remove(node)
        for before, reader in zip(node.predecessors, node.operator.inputs, strict=True):
            reader.arc.close(reader)
            if node in before.successors and not any(r in reader.arc.readers for r in node.operator.inputs):
                before.successors.remove(node)

    def _arc(self, plan: Plan, made: dict[Plan, Node]) -> Arc:
        if isinstance(plan, (Source, Table)):
            return self._leaf(plan).arc
        return self._node(plan, made).operator.output

    def _node(self, plan: Plan, made: dict[Plan, Node]) -> Node:
        """The node of a plan: shared if it may be, else new. `made`: the nodes of this very query."""
        if plan in made:
            return made[plan]
        alike = self._home.setdefault(without_bounds(plan), [])
        own = made.values()
        for node in reversed(alike):
            if node not in own and self._may_share(node) and self.quality.allows(plan, node):
                made[plan] = node
                return node
        arcs = [self._arc(below, made) for below in plan.inputs]
        before = [self._before(below, made) for below in plan.inputs]
        operator = build(plan, self._now)
        operator.connect(arcs)
        operator.output.ordered = not is_disordered(plan, self._disorder())
        made[plan] = self.new_node(plan, operator, before)
        return made[plan]

    def new_node(
        self, plan: Plan, operator: Operator, before: list[Node | SourceNode], id: int | None = None
    ) -> Node:
        """A node of an operator that is connected, under a new id or a given one."""
        node = Node(self._next_id if id is None else id, plan, operator, before)
        self._next_id = max(self._next_id, node.id + 1)
        for predecessor in dict.fromkeys(before):
            predecessor.successors.append(node)
        self.nodes.append(node)
        self._home.setdefault(without_bounds(plan), []).append(node)
        return node

    def forget(self, node: Node) -> None:
        """A node is no longer part of the graph; whoever read for it reads no more."""
        self.nodes.remove(node)
        self._home[without_bounds(node.plan)].remove(node)
        for before in dict.fromkeys(node.predecessors):
            before.successors.remove(node)

    def rename(self, node: Node, plan: Plan) -> None:
        """A node has another plan from now on, one that means the same."""
        self._home[without_bounds(node.plan)].remove(node)
        node.plan = plan
        self._home.setdefault(without_bounds(plan), []).append(node)

    def set_plan(self, query: str, plan: Plan) -> None:
        """A query has another plan from now on, one that means the same."""
        self._roots[query] = plan

    def nodes_of(self, query: str) -> list[Node]:
        """The nodes that a query's rows come by, inputs first."""
        arc = self.sinks[query].arc
        queue = [node for node in self.nodes if node.operator.output is arc]
        used: set[int] = set()
        while queue:
            node = queue.pop()
            used.add(node.id)
            queue += [each for each in node.predecessors if isinstance(each, Node) and each.id not in used]
        return [node for node in self.nodes if node.id in used]

    @property
    def clock(self) -> Callable[[], int]:
        """Says which instant is now."""
        return self._now

    def _before(self, plan: Plan, made: dict[Plan, Node]) -> Node | SourceNode:
        return self._leaf(plan) if isinstance(plan, (Source, Table)) else self._node(plan, made)

    def _leaf(self, plan: Source | Table) -> SourceNode:
        return self.sources[plan.name] if isinstance(plan, Source) else self.tables[plan.name]

    @staticmethod
    def _may_share(node: Node) -> bool:
        """Whether joining in now shows the same as a copy of one's own would."""
        queue: list[Node | SourceNode] = [node]
        while queue:
            one = queue.pop()
            if isinstance(one, Node):
                if _has_passed_by(one):
                    return False
                queue.extend(one.predecessors)
        return True

    def _count_sinks(self) -> None:
        for node in self.nodes:
            node.sinks = sum(sink.arc is node.operator.output for sink in self.sinks.values())

    def _root(self, query: str) -> Node:
        """The node whose answers the query gives."""
        return next(n for n in self.nodes if n.operator.output is self.sinks[query].arc)

    def plan_of(self, query: str) -> Plan:
        """The plan that runs under a name."""
        return self._roots[query]

    def components(self) -> Iterator[list[Node]]:
        """The connected components, each a scheduling unit, nodes in topological order."""
        seen: set[int] = set()
        for node in self.nodes:
            if node.id not in seen:
                component = self._reach(node)
                seen |= component
                yield [n for n in self.nodes if n.id in component]

    def _reach(self, start: Node) -> set[int]:
        reached: set[int] = set()
        queue: list[Node] = [start]
        while queue:
            node = queue.pop()
            if node.id in reached:
                continue
            reached.add(node.id)
            queue.extend(node.successors)
            for before in node.predecessors:
                queue.extend([before] if isinstance(before, Node) else before.successors)
        return reached


def _has_passed_by(node: Node) -> bool:
    """Whether a node holds rows, or has seen some, that a newcomer to it would miss or should not see."""
    tables = [isinstance(before, TableNode) for before in node.predecessors]
    if node.runs and (any(tables) or node.operator.remembers):
        return True
    readers = zip(node.operator.inputs, tables, strict=True)
    return any(reader.rows for reader, is_table in readers if not is_table)
