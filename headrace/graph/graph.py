"""The query graph: the plans of all queries as one graph, in which equal sub-plans run once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headrace.errors import GraphError
from headrace.flow.arc import Arc
from headrace.graph.node import Node, Sink
from headrace.graph.quality_bounds import Quality
from headrace.graph.service import USUAL, Service
from headrace.graph.source import SourceNode
from headrace.graph.table import TableNode
from headrace.operators.contract import Operator
from headrace.operators.table import build
from headrace.plan.analysis.check import check
from headrace.plan.analysis.ordering import Disorder, is_disordered, place_orders
from headrace.plan.nodes.core import Plan, Source, Table
from headrace.plan.nodes.latent import with_stamps
from headrace.plan.nodes.quality import without_bounds
from headrace.time.timestamp import MAX_TIME

Link = tuple[int, int]
"""Two nodes, by id, between which rows only become more (Srivastava & Widom, Figure 6)."""


class Graph:
    """Sources, operator nodes and sinks; grows and shrinks while it runs.

    A new query shares a node with an equal plan if neither that node nor the way to it holds earlier rows;
    otherwise it gets its own node, so that it sees exactly the rows that come after it was added. Nodes are
    shared only within a generation (`since`): so the same queries make the same graph after a restart, when
    all are added before the first row.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.sources: dict[str, SourceNode] = {}
        self.tables: dict[str, TableNode] = {}
        self.nodes: list[Node] = []
        self.sinks: dict[str, Sink] = {}
        self.since: dict[str, int] = {}
        self.services: dict[str, Service] = {}
        self._roots: dict[str, Plan] = {}
        self._written: dict[str, tuple[Plan, bool]] = {}
        self._home: dict[Plan, list[Node]] = {}
        self.quality = Quality()
        self.links: set[Link] = set()
        self.placement = "cost"
        """Where plans that are added restore order (`headrace.plan.analysis.ordering.PLACEMENTS`)."""
        self._now = now
        self.next_id = 0

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
        known.changes |= plan.changes
        return known

    @staticmethod
    def _refuse_as_both(name: str, others: Mapping[str, SourceNode]) -> None:
        """Raise an error if the name is already taken by the other kind of input."""
        if name in others:
            raise GraphError(
                "HR-G014", "a stream and a table have the same name", place=name, hint="rename one of them"
            )

    def add(
        self, query: str, plan: Plan, since: int = 0, *, ordered: bool = True, service: Service = USUAL
    ) -> None:
        """Add a query under a name, in a generation; results are `ordered` by time, or may leave early.

        `service` is what the query expects of the scheduler.
        """
        if query in self.sinks:
            raise GraphError(
                "HR-G002",
                "a query of this name is already running",
                place=query,
                hint="remove it, or choose another name",
            )
        check(plan)
        self._declare_all(plan)
        placed = place_orders(with_stamps(plan), self._disorder(), ordered, self.placement)
        self.sinks[query] = Sink(query, self._arc(placed, {}, since))
        self._roots[query], self._written[query], self.since[query] = placed, (plan, ordered), since
        self.services[query] = service
        if not isinstance(placed, (Source, Table)):
            self.quality.claim(query, plan, placed, self._root(query))
        self._count_sinks()

    def _disorder(self) -> Disorder:
        """Which streams may come out of order, and which of them admit late rows."""
        loose = [s for s in self.sources.values() if s.rules.disordered]
        admitted = frozenset(s.name for s in loose if s.rules.enforce == "admit")
        return Disorder(frozenset(s.name for s in loose), admitted)

    def _declare_all(self, plan: Plan) -> None:
        """Declare every stream and table that a plan reads."""
        if isinstance(plan, Source):
            self.declare(plan)
        if isinstance(plan, Table):
            self.declare_table(plan)
        for below in plan.inputs:
            self._declare_all(below)

    def remove(self, query: str) -> None:
        """Remove a query and every node that no other query reads."""
        self.sink(query)
        self.sinks.pop(query).close()
        del self._roots[query], self._written[query], self.since[query], self.services[query]
        self.quality.release(query)
        for node in reversed(self.nodes[:]):
            if not node.operator.output.readers:
                self._detach(node)
        self._count_sinks()

    def regroup(self, query: str, since: int) -> None:
        """Move a query that has not run yet to another generation."""
        (plan, ordered), service = self._written[query], self.services[query]
        self.remove(query)
        self.add(query, plan, since, ordered=ordered, service=service)

    def written(self, query: str) -> tuple[Plan, bool]:
        """The plan of a query as it was added, and whether its results are ordered."""
        return self._written[query]

    def arrange(self, queries: list[str]) -> None:
        """Put the queries into an order."""
        self.sinks = {query: self.sinks[query] for query in queries}

    def _detach(self, node: Node) -> None:
        """Remove a node and close its readers."""
        self.nodes.remove(node)
        self._home[without_bounds(node.plan)].remove(node)
        for before, reader in zip(node.predecessors, node.operator.inputs, strict=True):
            reader.arc.close(reader)
            if node in before.successors and not any(r in reader.arc.readers for r in node.operator.inputs):
                before.successors.remove(node)

    def _arc(self, plan: Plan, made: dict[Plan, Node], since: int) -> Arc:
        """The output arc of a plan's node; creates the node if needed."""
        if isinstance(plan, (Source, Table)):
            return self._leaf(plan).arc
        return self._node(plan, made, since).operator.output

    def _node(self, plan: Plan, made: dict[Plan, Node], since: int) -> Node:
        """The node of a plan: shared if possible, else new. `made`: the nodes of this query so far."""
        if plan in made:
            return made[plan]
        alike = self._home.setdefault(without_bounds(plan), [])
        own = made.values()
        for node in reversed(alike):
            if node.since != since or node in own:
                continue
            if self._may_share(node) and self.quality.allows(plan, node):
                made[plan] = node
                return node
        arcs = [self._arc(below, made, since) for below in plan.inputs]
        before = [self._before(below, made, since) for below in plan.inputs]
        operator = build(plan, self._now)
        operator.connect(arcs)
        operator.output.ordered = not is_disordered(plan, self._disorder())
        made[plan] = self.new_node(plan, operator, before, since)
        return made[plan]

    def new_node(
        self,
        plan: Plan,
        operator: Operator,
        before: list[Node | SourceNode],
        since: int,
        id: int | None = None,
    ) -> Node:
        """Add a node for a connected operator to a generation, under a new id or a given one."""
        node = Node(self.next_id if id is None else id, plan, operator, before, since)
        self.next_id = max(self.next_id, node.id + 1)
        for predecessor in dict.fromkeys(before):
            predecessor.successors.append(node)
        self.nodes.append(node)
        self._home.setdefault(without_bounds(plan), []).append(node)
        return node

    def forget(self, node: Node) -> None:
        """Remove a node from the graph; its readers stay open."""
        self.nodes.remove(node)
        self._home[without_bounds(node.plan)].remove(node)
        for before in dict.fromkeys(node.predecessors):
            before.successors.remove(node)

    def rename(self, node: Node, plan: Plan) -> None:
        """Give a node another plan with the same meaning."""
        self._home[without_bounds(node.plan)].remove(node)
        node.plan = plan
        self._home.setdefault(without_bounds(plan), []).append(node)

    def set_deadlines(self) -> None:
        """Give each node the earliest deadline of the queries that use it; MAX_TIME: none of them has one."""
        for node in self.nodes:
            node.deadline = MAX_TIME
        for query, service in self.services.items():
            for node in self.nodes_of(query) if service.deadline is not None else ():
                node.deadline = min(node.deadline, service.deadline or MAX_TIME)

    def set_plan(self, query: str, plan: Plan) -> None:
        """Give a query another plan with the same meaning."""
        self._roots[query] = plan

    def source(self, stream: str) -> SourceNode:
        """The source of a stream that was declared, or that a query reads."""
        source = self.sources.get(stream)
        if source is None:
            known = ", ".join(self.sources) or "none"
            raise GraphError("HR-G005", "no query reads such a stream", place=stream, hint=f"known: {known}")
        return source

    def sink(self, query: str | None) -> Sink:
        """The sink of a query; if no query is named, that of the only one."""
        if query is None and len(self.sinks) == 1:
            return next(iter(self.sinks.values()))
        if query is None or query not in self.sinks:
            known = ", ".join(self.sinks) or "none"
            raise GraphError("HR-G003", "no such query", place=str(query), hint=f"running: {known}")
        return self.sinks[query]

    def nodes_of(self, query: str) -> list[Node]:
        """The nodes that a query's rows pass, inputs first."""
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
        """The function that returns the current instant."""
        return self._now

    def _before(self, plan: Plan, made: dict[Plan, Node], since: int) -> Node | SourceNode:
        """The node, source or table that runs a plan; creates the node if needed."""
        return self._leaf(plan) if isinstance(plan, (Source, Table)) else self._node(plan, made, since)

    def _leaf(self, plan: Source | Table) -> SourceNode:
        return self.sources[plan.name] if isinstance(plan, Source) else self.tables[plan.name]

    @staticmethod
    def _may_share(node: Node) -> bool:
        """Whether a new query would get the same answers from this node as from its own copy."""
        queue: list[Node | SourceNode] = [node]
        while queue:
            one = queue.pop()
            if isinstance(one, Node):
                if _has_passed_by(one):
                    return False
                queue.extend(one.predecessors)
        return True

    def _count_sinks(self) -> None:
        """Count the sinks that read each node."""
        for node in self.nodes:
            node.sinks = sum(sink.arc is node.operator.output for sink in self.sinks.values())

    def _root(self, query: str) -> Node:
        """The node whose output is the query's result."""
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
        """The ids of all nodes connected with `start`, in either direction."""
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
    """Whether a node holds or has seen rows that a new query would miss or should not see."""
    tables = [isinstance(before, TableNode) for before in node.predecessors]
    if node.runs and (any(tables) or (node.operator.keeps_rows and node.operator.state())):
        return True
    readers = zip(node.operator.inputs, tables, strict=True)
    return any(reader.rows for reader, is_table in readers if not is_table)
