"""Restores a snapshot into a graph whose queries may differ from those of the snapshot.

Queries are matched by name, their nodes by what they compute (`headrace.plan.analysis.identity`). A query
goes on if each of its operators that keeps something has a counterpart. Everything is checked before anything
changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import ndiff
from typing import Any, Final

import pyarrow as pa

from headrace.engine.snapshot import (
    LOOKS,
    MEMORY,
    ORDERS,
    PROMISES,
    STRUCTURE,
    TIMEKEEPER,
    ArcPart,
    NodePart,
    Snapshot,
    SourcePart,
    arc_part,
    readable,
)
from headrace.engine.structure import NodeEntry, Structure, consumers_of, holds, node_arc
from headrace.engine.timekeeper import Timekeeper
from headrace.errors import GraphError
from headrace.graph.graph import Graph
from headrace.graph.join_box import switch
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.adaptable import Adaptable
from headrace.operators.order import OrderOperator
from headrace.operators.table import build
from headrace.plan.analysis.identity import BY_POSITION, fingerprint, label
from headrace.plan.analysis.ordering import Order
from headrace.plan.nodes.core import Plan, Source, Table
from headrace.plan.nodes.trees import exchange, walk
from headrace.plan.rewrite.order_joins import highest_tree, in_order, taken_apart
from headrace.plan.show import Span, show
from headrace.schema import DataType, Schema
from headrace.state.part import Chunk, Part, Value, decode, goes_on, widened

SpanOf = Callable[[Sequence[str]], Span]
_TYPES: Final = {
    str(t): t for t in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
}


@dataclass(frozen=True)
class Adopted:
    """What became of the queries: state `kept`, `begun` empty, `freed` with their state, `reset` on request.

    `since` is the generation of each query that runs now; use it when the queries are added again.
    """

    kept: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    reset: tuple[str, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = {"keeps": self.kept, "begins": self.begun, "frees": self.freed, "resets": self.reset}
        return "; ".join(f"{verb} {', '.join(names)}" for verb, names in parts.items() if names)


def structure_in(chain: Sequence[Snapshot]) -> Structure | None:
    """The structure of the graph that wrote the last snapshot; None if it is of an earlier version."""
    for snapshot in reversed(chain):
        if STRUCTURE in snapshot.chunks:
            with readable():
                return Structure.from_chunk(snapshot.chunks[STRUCTURE])
    return None


class Adoption:
    """The comparison of a graph with a snapshot: `check` it, then `carry_out`."""

    def __init__(
        self, graph: Graph, chain: Sequence[Snapshot], old: Structure, reset: Collection[str], span_of: SpanOf
    ) -> None:
        self.graph, self.chain, self.old, self._span_of = graph, chain, old, span_of
        unknown = next((name for name in reset if name not in graph.sinks), None)
        if unknown is not None:
            graph.sink(unknown)
        names = list(graph.sinks)
        self.kept = [name for name in names if name in old.queries and name not in reset]
        self.reset = [name for name in names if name in reset]
        self.begun = [name for name in names if name not in self.kept and name not in reset]
        self.freed = [name for name in old.queries if name not in graph.sinks]
        self._orders = self._log()
        self.matches: dict[str, dict[Plan, int]] = {}

    def _log(self) -> list[dict[str, Any]]:
        """The changes of join order of the queries that are kept."""
        chunk = self.chain[-1].chunks.get(ORDERS)
        log = [] if chunk is None else json.loads(str(decode(chunk)["log"]))
        return [entry for entry in log if entry["query"] in self.kept]

    # ---------------------------------------------------------------------------------------- checking

    def check(self) -> None:
        """Find the counterpart of every operator; raises an error if state cannot serve. Changes nothing."""
        operators = {node.plan: node for node in self.graph.nodes}
        for query in self.kept:
            self.matches[query] = self._match(query, operators)
        matched = {id for match in self.matches.values() for id in match.values()}
        for query in self.kept:
            self._check_at_rest(query, matched)

    def _plan(self, query: str) -> Plan:
        """The plan of a query, with its joins in the order that they had in the snapshot."""
        plan = self.graph.plan_of(query)
        for entry in self._orders:
            tree = highest_tree(plan) if entry["query"] == query else None
            if tree is not None and len(taken_apart(tree).leaves) == len(entry["order"]):
                plan = exchange(plan, tree, in_order(tree, list(entry["order"])))
        return plan

    def _match(self, query: str, operators: Mapping[Plan, Node]) -> dict[Plan, int]:
        """By plan node of a query, the node of the snapshot that computes the same."""
        plan = self._plan(query)
        theirs = [self.old.nodes[id] for id in self.old.queries[query].nodes]
        free: dict[str, list[NodeEntry]] = {}
        for entry in theirs:
            free.setdefault(entry.fingerprint, []).append(entry)
        found: dict[Plan, int] = {}
        for each in _inputs_first(plan):
            if isinstance(each, (Source, Table)) or each in found:
                continue
            operator = operators[each].operator if each in operators else build(each, self.graph.clock)
            alike = free.get(fingerprint(each), [])
            text = label(each, self._span_of([query]))
            alike.sort(key=lambda entry: entry.label != text)
            usable = next((e for e in alike if self._serves(e, each, set(operator.state()))), None)
            if usable is not None:
                alike.remove(usable)
                found[each] = usable.id
            elif holds(each, operator) and not isinstance(operator, OrderOperator):
                narrow = [p for entry in alike for p in _columns_of(entry, each) if _narrower(*p)]
                raise self._refusal(query, text, theirs, set(found.values()), narrow)
        lost = next((e for e in theirs if e.sorts and e.id not in found.values()), None)
        if lost is not None:
            raise self._refusal(query, lost.label, theirs, set(found.values()), [])
        return found

    def _serves(self, entry: NodeEntry, plan: Plan, parts: set[str]) -> bool:
        """Whether the state of an entry fits: it has the same parts, and columns that are not wider."""
        prefix = f"node/{entry.id}/"
        names = {name.removeprefix(prefix) for name in self.chain[-1].chunks if name.startswith(prefix)}
        odd = (names - {"arc"}) ^ parts
        if any(not f"/{name}".endswith(PROMISES) for name in odd):
            return False
        return not any(_narrower(*pair) for pair in _columns_of(entry, plan))

    def _refusal(
        self,
        query: str,
        where: str,
        theirs: Sequence[NodeEntry],
        used: Collection[int],
        narrow: Sequence[tuple[tuple[str, str], pa.Field]],
    ) -> GraphError:
        """The error for an operator without a counterpart: what it is, and what the snapshot has instead."""
        if narrow:
            (name, before), now = narrow[0]
            what = f"column {name} was {before} and is {now.type} now, which is not wider"
        else:
            instead = [e.label for e in theirs if e.holds and e.id not in used]
            what = f"the checkpoint has no state for: {where}"
            what += f"; it has: {instead[0]}" if instead and instead[0] != where else ""
            span = self._span_of([query])
            changed = _changed_lines(self.old.queries[query].plan, show(self.graph.plan_of(query), span))
            what += f" ({changed})" if changed else ""
        return GraphError(
            "HR-G022",
            f"the state of query {query} cannot go on: {what}",
            place=query,
            hint=f"undo the change, start the query empty with --reset {query}, or give it a new name",
        )

    def _check_at_rest(self, query: str, matched: Collection[int]) -> None:
        """Raise an error if rows wait in front of an operator of the query that has no counterpart."""
        entry = self.old.queries[query]
        gone = {f"node/{id}/" for id in entry.nodes if id not in matched}
        same_end = entry.arc == self._end_of(query)
        for arc, consumers in self.old.readers.items():
            for place, consumer in enumerate(consumers):
                ends = consumer == f"query/{query}" and not same_end
                if (ends or any(consumer.startswith(each) for each in gone)) and self._waits(arc, place):
                    raise GraphError(
                        "HR-G024",
                        f"rows of query {query} are on their way between operators that have changed",
                        place=query,
                        hint="run and drain the engine before the snapshot, or reset the query",
                    )

    def _end_of(self, query: str) -> str:
        """The arc of the snapshot that a query reads its results from now; empty if it has no counterpart."""
        plan = self._plan(query)
        if isinstance(plan, (Source, Table)):
            return f"{'source' if isinstance(plan, Source) else 'table'}/{plan.name}/arc"
        root = self.matches[query].get(plan)
        return "" if root is None else node_arc(root)

    def _waits(self, arc: str, place: int) -> bool:
        """Whether a reader of an arc has not read everything."""
        with readable():
            chunk: Any = decode(self.chain[-1].chunks[arc])
            position, offset = chunk["cursors"][place].tolist()
            return bool(position < chunk["begin"] + chunk["count"] or offset)

    # --------------------------------------------------------------------------------------- carrying out

    def separate(self) -> None:
        """Give queries their own nodes where they must not share them: with other state, or with none.

        All that begin now are one generation. Its number is negative: callers count generations upwards.
        """
        used = [*self.graph.since.values(), *(entry.since for entry in self.old.queries.values())]
        fresh = min([0, *used]) - 1
        order = list(self.graph.sinks)
        taken: dict[Node, object] = {}
        for query in [*self.kept, *self.begun, *self.reset]:
            wanted = self._wanted(query)
            if any(taken.get(node, which) != which for node, which in wanted.items()):
                self.graph.regroup(query, fresh)
                fresh -= query in self.kept
                wanted = self._wanted(query)
            taken |= wanted
        self.graph.arrange(order)

    def _wanted(self, query: str) -> dict[Node, object]:
        """The nodes of a query, each with the node of the snapshot that it continues, or None.

        Joins that will change their order have no counterpart yet; no other query may share them.
        """
        match = self.matches.get(query, {})
        reordered = any(entry["query"] == query for entry in self._orders)
        plans = self._written(query)
        return {node: match.get(plan, query if reordered else None) for node, plan in plans.items()}

    def _written(self, query: str) -> dict[Node, Plan]:
        """The nodes of a query, each with its plan as the query has it.

        A node that queries share has the plan of the first of them, whose bounds may be others.
        """
        arc = self.graph.sinks[query].arc
        root = self.graph.plan_of(query)
        queue = [(node, root) for node in self.graph.nodes if node.operator.output is arc]
        found: dict[Node, Plan] = {}
        while queue:
            node, plan = queue.pop()
            found[node] = plan
            below = zip(node.predecessors, plan.inputs, strict=True)
            queue += [(each, what) for each, what in below if isinstance(each, Node) and each not in found]
        return {node: found[node] for node in self.graph.nodes_of(query)}

    def carry_out(self) -> dict[Node, int]:
        """Bring the graph into the shape of the snapshot; returns the nodes that have a counterpart."""
        offset = 1 + max([*self.old.nodes, *(node.id for node in self.graph.nodes)], default=0)
        for node in self.graph.nodes:
            node.id += offset
        self.graph.next_id = 2 * offset
        for entry in self._orders:
            switch(self.graph, entry["query"], entry["order"], prime=False)
        counterpart: dict[Node, int] = {}
        for query in self.kept:
            match = self.matches[query]
            for node, plan in self._written(query).items():
                if plan in match:
                    counterpart.setdefault(node, match[plan])
        first = {id: node for node, id in reversed(counterpart.items())}
        ids = {node: id for id, node in first.items()}
        self.graph.next_id = 1 + max(self.old.nodes, default=-1)
        for node in self.graph.nodes:
            if node not in ids:
                ids[node], self.graph.next_id = self.graph.next_id, self.graph.next_id + 1
            node.id = ids[node]
        return counterpart

    def orders(self) -> dict[str, Value] | None:
        """The chunk of join orders of the queries that are kept."""
        chunk = self.chain[-1].chunks.get(ORDERS)
        if chunk is None:
            return None
        content = decode(chunk)
        pending = [each for each in json.loads(str(content["pending"])) if each["query"] in self.kept]
        return {"log": json.dumps(self._orders), "pending": json.dumps(pending)}

    @property
    def adopted(self) -> Adopted:
        """What became of the queries."""
        kept, begun, freed, reset = map(tuple, (self.kept, self.begun, self.freed, self.reset))
        return Adopted(kept, begun, freed, reset, dict(self.graph.since))


# ------------------------------------------------------------------------------------------------ the state


class Transfer:
    """Applies a chain of snapshots to a graph whose nodes have counterparts in it."""

    def __init__(self, graph: Graph, old: Structure, counterpart: Mapping[Node, int]) -> None:
        self._graph, self._old, self._counterpart = graph, old, counterpart
        self._consumers = consumers_of(graph)
        self._best = {id: old.nodes[id].best for id in counterpart.values() if id in old.nodes}
        self._aliases = {f"node/{node.id}": f"node/{id}" for node, id in counterpart.items()}
        self._kept_tables = self._tables_in_use()

    def _tables_in_use(self) -> set[str]:
        """The tables that a node with state from the snapshot reads; others keep the rows they were given."""
        found: set[str] = set()
        for node in self._counterpart:
            found |= {each.name for each in walk(node.plan) if isinstance(each, Table)}
        return found

    def apply(self, snapshot: Snapshot, last: bool) -> None:
        """Apply one snapshot; readers without a counterpart begin at the end of what the `last` one holds."""
        structure = structure_in([snapshot])
        self._old = structure or self._old
        for name, source in self._leaves():
            if name in snapshot.chunks:
                with readable():
                    resume_source(source, decode(snapshot.chunks[name]))
                    self._arc(f"{name}/arc", f"{name}/arc", source.arc, source.schema, snapshot, last)
        for node, id in self._counterpart.items():
            old = f"node/{id}"
            if old in snapshot.chunks:
                with readable():
                    NodePart(node).apply(decode(snapshot.chunks[old]))
                    self._arc(
                        f"node/{node.id}/arc",
                        f"{old}/arc",
                        node.operator.output,
                        node.plan.schema,
                        snapshot,
                        last,
                    )
                    for name, part in node.operator.state().items():
                        if f"{old}/{name}" in snapshot.chunks:
                            part.apply(self._state(node, id, decode(snapshot.chunks[f"{old}/{name}"])))

    def _leaves(self) -> Iterator[tuple[str, SourceNode]]:
        for name, source in self._graph.sources.items():
            yield f"source/{name}", source
        for name, table in self._graph.tables.items():
            if name in self._kept_tables:
                yield f"table/{name}", table

    def _state(self, node: Node, id: int, chunk: dict[str, Value]) -> dict[str, Value]:
        """A chunk of a node's state with the names and types that its columns have now."""
        entry, plan = self._old.nodes.get(id), node.plan
        schema = pa.schema({f.name: f for below in plan.inputs for f in below.schema}.values())
        renamed: dict[str, str] = {}
        if entry is not None and isinstance(plan, BY_POSITION):
            for before, below in zip(entry.reads, plan.inputs, strict=True):
                if len(before) == len(below.schema):
                    renamed |= {a: b for (a, _), b in zip(before, below.schema.names, strict=True) if a != b}
        sorts = isinstance(node.plan, Order)
        return {
            k: _fitted(_renamed(v, renamed), schema, sorts) if isinstance(v, pa.RecordBatch) else v
            for k, v in chunk.items()
        }

    def _arc(self, name: str, old: str, arc: Any, schema: Schema, snapshot: Snapshot, last: bool) -> None:
        """Restore an arc; each reader continues where its counterpart was."""
        if old not in snapshot.chunks:
            return
        chunk: dict[str, Any] = decode(snapshot.chunks[old])
        places = {consumer: i for i, consumer in enumerate(self._old.readers.get(old, ()))}
        tail = chunk["begin"] + chunk["count"]
        start = chunk["base"] if not last or old.startswith("table/") else tail
        cursors = [
            chunk["cursors"][places[theirs]].tolist()
            if (theirs := self._theirs(mine)) in places
            else [start, 0]
            for mine in self._consumers.get(name, ())
        ]
        named = old.startswith(("source/", "table/"))
        rows = {
            k: _fitted(v if named else _by_position(v, schema), schema, True)
            if isinstance(v, pa.RecordBatch)
            else v
            for k, v in chunk.items()
        }
        part: ArcPart = arc_part(arc)
        part.apply_with(rows, cursors)

    def _theirs(self, consumer: str) -> str:
        """The name of a consumer in the snapshot."""
        kind, _, rest = consumer.partition("/")
        if kind == "query":
            return consumer
        id, _, input = rest.partition("/")
        return f"{self._aliases.get(f'node/{id}', 'none')}/{input}"

    def settle(self) -> None:
        """Let windows and granularities follow their bounds, which may be others than they were."""
        for node, id in self._counterpart.items():
            operator = node.operator
            if not isinstance(operator, Adaptable) or not operator.history.begun:
                continue
            history, bounds = operator.history, operator.history.bounds
            wanted = bounds.best if history.value == self._best.get(id) else history.value
            wanted = bounds.nearest(wanted)
            if wanted != history.value or any(value not in bounds for value in history.to_come()):
                operator.change(operator.earliest, wanted)


def resume_source(source: SourceNode, chunk: Chunk) -> None:
    """Continue a source: its counters and promises stay; its bounds may be others than they were."""
    before = source.promise.snapshot().keys()
    state = {k.removeprefix("promise:") for k in chunk if k.startswith("promise:")}
    if state == set(before):
        SourcePart(source).apply(chunk)
    else:
        promise, source.promise = source.promise, _Forgetful()
        try:
            SourcePart(source).apply(chunk)
        finally:
            source.promise = promise
    source.keep_answered(chunk.get("promise:settings", ""))


class _Forgetful:
    """Stands for a promise of another kind while a source is restored: what it had learned does not apply."""

    by_clock = False

    def observe(self, times: Any, now: int, read: int | None = None) -> None:
        return None

    def at(self, now: int, read: int | None = None) -> int:
        raise AssertionError

    def before(self, now: int) -> int:
        raise AssertionError

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None


def resume_extras(parts: Mapping[str, Part], adoption: Adoption, chain: Sequence[Snapshot]) -> None:
    """Continue what belongs to the whole engine: bounds, budget, measurements."""
    last = chain[-1].chunks
    with readable():
        keeper = parts.get(TIMEKEEPER)
        if isinstance(keeper, Timekeeper) and TIMEKEEPER in last:
            chunk: dict[str, Any] = decode(last[TIMEKEEPER])
            told = (decode(s.chunks[TIMEKEEPER]) for s in reversed(chain) if TIMEKEEPER in s.chunks)
            settings = next((each["settings"] for each in told if "settings" in each), None)
            if settings is not None:
                given = {name: source.promised for name, source in adoption.graph.sources.items()}
                keeper.resume(chunk | {"settings": settings}, given)
        if MEMORY in parts and MEMORY in last:
            parts[MEMORY].apply(decode(last[MEMORY]))
        if LOOKS in parts and LOOKS in last:
            looks = decode(last[LOOKS])
            kept = {q: look for q, look in json.loads(str(looks["looks"])).items() if q in adoption.kept}
            parts[LOOKS].apply({**looks, "looks": json.dumps(kept)})


# -------------------------------------------------------------------------------------------------- columns


def _inputs_first(plan: Plan) -> Iterator[Plan]:
    for below in plan.inputs:
        yield from _inputs_first(below)
    yield plan


def _columns_of(entry: NodeEntry, plan: Plan) -> Iterator[tuple[tuple[str, str], pa.Field]]:
    """The columns of the inputs in the snapshot, each with the one that it is now."""
    for before, below in zip(entry.reads, plan.inputs, strict=True):
        if len(before) == len(below.schema):
            yield from zip(before, below.schema, strict=True)
        else:
            names = below.schema.names
            yield from ((each, below.schema.field(each[0])) for each in before if each[0] in names)


def _narrower(before: tuple[str, str], now: pa.Field) -> bool:
    """Whether values of a column may not fit into the type that it has now."""
    if before[1] == str(now.type):
        return False
    old = _type(before[1])
    return old is None or not goes_on(old, now.type)


def _type(text: str) -> DataType | None:
    """A type from its text, for types that may become wider."""
    if text.startswith("decimal128("):
        precision, scale = text.removeprefix("decimal128(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _TYPES.get(text)


def _renamed(rows: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    return rows.rename_columns([names.get(name, name) for name in rows.schema.names]) if names else rows


def _by_position(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows of an arc under the names that their columns have now."""
    names = rows.schema.names
    return rows.rename_columns(schema.names) if len(names) == len(schema) and names != schema.names else rows


def _fitted(rows: pa.RecordBatch, schema: Schema, whole: bool) -> pa.RecordBatch:
    """Rows with wider columns where the schema has them; with `whole`, exactly the columns of the schema."""
    rows = widened(rows, schema)
    if not whole or rows.schema.names == schema.names:
        return rows
    known = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns = [known[f.name] if f.name in known else pa.nulls(rows.num_rows, f.type) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _changed_lines(before: str, now: str) -> str:
    """What differs between two plans, as text: the first lines on either side."""
    lines = list(ndiff(before.splitlines(), now.splitlines()))
    gone = [line[2:].strip() for line in lines if line.startswith("- ")]
    new = [line[2:].strip() for line in lines if line.startswith("+ ")]
    parts = [f"was: {gone[0]}"] if gone else []
    parts += [f"now: {new[0]}"] if new else []
    return "; ".join(parts)
