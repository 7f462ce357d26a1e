"""A tree of joins that can be reordered while the query runs.

The rows of every leaf are in the state of some join, and the state of the inner joins follows from them. So
when the whole tree has answered up to one instant, a tree in another order can take over the same rows, with
their pairs marked as answered, and continue: state is moved, nothing runs twice, and every later element has
the same interval as before (Zhu, Rundensteiner and Heineman, SIGMOD 2004, §4, "moving state").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.flow.arc import Arc, Reader
from headrace.flow.batch import Batch
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Stateless
from headrace.operators.join import JoinOperator
from headrace.operators.table import build
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.trees import over
from headrace.plan.rewrite.order_joins import Tree, highest_tree, in_order, taken_apart
from headrace.time.timestamp import MAX_TIME

Origin = Node | SourceNode


@dataclass
class Leaf:
    """A relation that is joined: where it comes from, and the join input that holds its rows."""

    plan: Plan
    origin: Origin
    reader: Reader
    join: JoinOperator
    input: int

    def held(self) -> Batch:
        """The rows that can still meet a partner."""
        return self.join.held(self.input)


@dataclass
class JoinBox:
    """The nodes of a tree of joins, `top` last, and its leaves in the order of the plan."""

    plan: Plan
    tree: Tree
    top: Node
    nodes: list[Node] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins, lower ones first."""
        return [node.operator for node in self.nodes if isinstance(node.operator, JoinOperator)]

    @property
    def split(self) -> int:
        """The latest instant that some join has answered for."""
        return max(join.frontier for join in self.joins)

    @property
    def rows_in(self) -> int:
        """How many rows have entered the tree of joins."""
        return sum(leaf.reader.arc.rows_in for leaf in self.leaves)

    @property
    def bytes(self) -> int:
        """Bytes that the joins hold."""
        return sum(join.memory.bytes() for join in self.joins)

    def hold(self) -> None:
        """Stop every join at the instant that the furthest one has reached, so that all meet there."""
        split = self.split
        for join in self.joins:
            join.hold = min(join.hold, split)

    def release(self) -> None:
        """Let the joins continue."""
        for join in self.joins:
            join.hold = MAX_TIME

    def is_settled(self) -> bool:
        """Whether all joins have answered up to one instant and no rows wait between them."""
        split = self.split
        if any(join.reach() < split or join.more for join in self.joins):
            return False
        inside = [id(node.operator.output) for node in self.nodes if node is not self.top]
        readers = (reader for node in self.nodes for reader in node.operator.inputs)
        return all(reader.empty for reader in readers if id(reader.arc) in inside)

    def obstacle(self, graph: Graph, query: str) -> str:
        """Why the order cannot change, or an empty string."""
        others = {id(node) for name in graph.sinks if name != query for node in graph.nodes_of(name)}
        if any(id(node) in others for node in self.nodes):
            return "another query shares these joins"
        if any(join.has_closed for join in self.joins):
            return "a punctuation has closed keys, so that rows were forgotten which another order would need"
        return ""


def join_box(graph: Graph, query: str) -> JoinBox | None:
    """The topmost tree of joins over three or more relations in a query."""
    plan = highest_tree(graph.plan_of(query))
    if plan is None:
        return None
    top = next((node for node in graph.nodes_of(query) if node.plan == plan), None)
    if top is None:
        return None
    box = JoinBox(plan, taken_apart(plan), top)
    leaves = {id(leaf): leaf for leaf in box.tree.leaves}
    _walk(box, plan, top, leaves)
    order = {id(leaf): i for i, leaf in enumerate(box.tree.leaves)}
    box.leaves.sort(key=lambda leaf: order[id(leaf.plan)])
    return box


def _walk(box: JoinBox, plan: Plan, node: Node, leaves: dict[int, Plan]) -> None:
    """Collect the nodes and leaves of a tree of joins, inputs first."""
    for input, (below, origin) in enumerate(zip(plan.inputs, node.predecessors, strict=True)):
        if id(below) in leaves:
            assert isinstance(node.operator, JoinOperator)
            box.leaves.append(Leaf(below, origin, node.operator.inputs[input], node.operator, input))
        else:
            assert isinstance(origin, Node)
            _walk(box, below, origin, leaves)
    box.nodes.append(node)


# ------------------------------------------------------------------------------------------------ switching


def switch(
    graph: Graph, query: str, order: Sequence[int], ids: Sequence[int] = (), prime: bool = True
) -> list[int]:
    """Put the joins of a query into another order, with new node ids or given ones; returns the ids.

    Without `prime` the new joins are empty, to be filled from a snapshot.
    """
    box = join_box(graph, query)
    assert box is not None, query
    split = box.split
    plan = in_order(box.plan, list(order))
    made = _Made(graph, box, iter(ids))
    new = made.node(plan)
    if prime:
        made.prime(plan, split)
    _take_over(graph, box, made.nodes, new)
    _substitute(graph, query, box.plan, plan)
    return [node.id for node in made.nodes]


@dataclass
class _Made:
    """The nodes of the tree in its new order."""

    graph: Graph
    box: JoinBox
    ids: Iterator[int]
    nodes: list[Node] = field(default_factory=list)
    by_plan: dict[int, Node] = field(default_factory=dict)

    def _leaf(self, plan: Plan) -> Leaf | None:
        return next((leaf for leaf in self.box.leaves if leaf.plan is plan), None)

    def node(self, plan: Plan) -> Node:
        """A new node of a plan, and of all below it down to the leaves."""
        before: list[Origin] = []
        for below in plan.inputs:
            leaf = self._leaf(below)
            before.append(self.node(below) if leaf is None else leaf.origin)
        operator = build(plan, self.graph.clock)
        operator.connect([_arc(each) for each in before])
        for below, reader in zip(plan.inputs, operator.inputs, strict=True):
            leaf = self._leaf(below)
            if leaf is not None:
                reader.arc.replace(leaf.reader, reader)
        node = self.graph.new_node(plan, operator, before, self.box.top.since, next(self.ids, None))
        self.nodes.append(node)
        self.by_plan[id(plan)] = node
        return node

    def prime(self, plan: Plan, split: int) -> None:
        """Fill the state of every new join; the output of the top one was answered, so it is not computed."""
        operator = self.by_plan[id(plan)].operator
        if isinstance(operator, JoinOperator):
            operator.take_over([self._primed(below, split) for below in plan.inputs], split)
        else:
            self.prime(plan.inputs[0], split)

    def _primed(self, plan: Plan, split: int) -> Batch:
        """Fill the joins of a part of the tree; returns what that part has answered by the split."""
        leaf = self._leaf(plan)
        if leaf is not None:
            return leaf.held()
        inputs = [self._primed(below, split) for below in plan.inputs]
        operator = self.by_plan[id(plan)].operator
        if isinstance(operator, JoinOperator):
            out = operator.prime(inputs, split)
            return _nothing(plan) if out is None else out
        assert isinstance(operator, Stateless)
        return operator.apply(inputs[0])


def _arc(origin: Origin) -> Arc:
    return origin.operator.output if isinstance(origin, Node) else origin.arc


def _nothing(plan: Plan) -> Batch:
    """An empty batch with the schema of a plan."""
    none = np.empty(0, np.int64)
    columns = [pa.array([], field.type) for field in plan.schema]
    return Batch(pa.RecordBatch.from_arrays(columns, schema=plan.schema), none, none)


def _take_over(graph: Graph, box: JoinBox, nodes: Sequence[Node], new: Node) -> None:
    """Replace the old nodes by the new ones; the readers of the tree are not affected."""
    old = box.top
    new.operator.output, new.operator.rows_out = old.operator.output, old.operator.rows_out
    new.successors = old.successors
    for after in new.successors:
        after.predecessors = [new if each is old else each for each in after.predecessors]
    at = graph.nodes.index(box.nodes[0])
    graph.nodes = [node for node in graph.nodes if node not in nodes]
    graph.nodes[at:at] = nodes
    for node in nodes:
        node.runs, node.fresh = max(1, node.runs), True
    for node in box.nodes:
        graph.forget(node)


def _substitute(graph: Graph, query: str, old: Plan, new: Plan) -> None:
    """Update the plans of everything above the tree."""
    above = {id(node) for node in graph.nodes_of(query)}
    for node in graph.nodes:
        if id(node) in above:
            graph.rename(node, _exchanged(node.plan, old, new))
    graph.set_plan(query, _exchanged(graph.plan_of(query), old, new))


def _exchanged(plan: Plan, old: Plan, new: Plan) -> Plan:
    """The plan with `old` replaced by `new` wherever it occurs."""
    if plan == old:
        return new
    return over(plan, [_exchanged(below, old, new) for below in plan.inputs])
