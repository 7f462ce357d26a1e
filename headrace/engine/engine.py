"""The engine: push rows, advance the clock, drain the results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.drawing import Explanation
from headrace.engine.adopting import Adopted, Adoption, Transfer, resume_extras, structure_in
from headrace.engine.explain import explained_sections, graph_diagram
from headrace.engine.loop import Loop, check_instant
from headrace.engine.memory import Memory
from headrace.engine.metrics import Metrics, account_waiting, measure
from headrace.engine.optimizer import Optimizer
from headrace.engine.order_reasons import order_section
from headrace.engine.pushing import rows_for, times_for
from headrace.engine.quality import QualityOfService
from headrace.engine.scheduling import Scheduling, check_service
from headrace.engine.shape import Shape, shape_of
from headrace.engine.snapshot import (
    LOOKS,
    MEMORY,
    ORDERS,
    STRUCTURE,
    TIMEKEEPER,
    Snapshot,
    check_chain,
    columns_of,
    restore_graph,
    snapshot_graph,
)
from headrace.engine.streams import Streams
from headrace.engine.structure import Structure, structure_of
from headrace.engine.unfinished import Unfinished, copy_of, unfinished
from headrace.errors import GraphError
from headrace.flow.batch import Batch
from headrace.graph.ets_arcs import propagation_named
from headrace.graph.reloading import change_table, changes, compact, reload_table, table_named
from headrace.graph.service import USUAL, Service
from headrace.graph.table import Rows, rows_of
from headrace.operators.contract import Waiting
from headrace.plan.nodes.core import Plan, Table
from headrace.plan.show import Span, in_units, show
from headrace.spill.store import SpillStore
from headrace.state.part import Part, decode
from headrace.time.punctuation import Late, Punctuation, Rejected
from headrace.time.sources import Cells


class Planned(Protocol):
    """An object with a plan, such as a parsed query."""

    @property
    def plan(self) -> Plan:
        """The plan; its result is a stream."""
        ...


class Engine:
    """Runs continuous queries over pushed rows.

    `push` puts rows into a source's buffer; `run`, and with it `advance` and `drain`, executes until
    nothing more can be proven. After `run`, no row stays in a buffer whose release is provable from the
    heartbeats of the sources at the current instant.

    Everything else is in a part: `streams` (what sources promise and account for), `memory` (budget and
    spilling), `quality` (window sizes and granularities), `scheduling` (who runs next), `optimizer` (the
    order of joins and conditions).
    """

    def __init__(
        self,
        *,
        strategy: str = "auto",
        propagation: str = "direct",
        now: int = 0,
        spill_to: SpillStore | None = None,
    ) -> None:
        propagation = propagation_named(propagation)
        self._loop = loop = Loop(strategy, propagation == "direct", now)
        self.graph = loop.graph
        self.scheduling = Scheduling(loop, propagation)
        self.memory = Memory(loop.graph, spill_to)
        self.streams = Streams(loop, self.memory)
        self.quality = QualityOfService(loop, self._span_of)
        self.optimizer = Optimizer(loop.graph, self.run)
        self._ticks: dict[str, int | None] = {}
        self._version = 0
        self._structure: Structure | None = None
        self._shape: Shape | None = None
        self._changed = self._reordered = self._apart = False

    @property
    def now(self) -> int:
        """The last instant of the wall clock that the engine was given."""
        return self._loop.now

    # --------------------------------------------------------------------------------------------- queries

    def add(
        self,
        query: str,
        plan: Plan | Planned,
        *,
        since: int = 0,
        ordered: bool | None = None,
        importance: float | None = None,
        service: Service | None = None,
    ) -> None:
        """Add a query; it covers rows pushed from now on, not those pushed before.

        `since` is its generation. Queries share operators only within a generation: give a query that is
        added while others run a number of its own, and the same one when it is added again to restore it.

        `ordered`: its results leave in order of time; None: as the query says. If not, a group that a
        punctuation closes is answered at once, before its window or session ends, and a group by source when
        its own source is complete.

        `importance`: how much its quality counts beside that of others, where a budget makes windows smaller;
        None: as the query says, 1 if it does not.

        With a budget, a query that is added while others run must fit: if even its smallest windows would
        not, beside those of the others and at the rates measured so far, an error says what would (HR-M004).

        `service`: its deadline, share, priority, strategy and break nodes, which the scheduler uses; None: as
        the query says.
        """
        planned = plan if isinstance(plan, Plan) else getattr(plan, "plan", None)
        if not isinstance(planned, Plan):
            raise GraphError(
                "HR-G012",
                f"a query is a plan, not {type(plan).__name__}",
                place=query,
                hint="of text: headrace.query(text, streams)",
            )
        if any(source.admission.rows_in for source in self.graph.sources.values()):
            self.run()  # not earlier: nodes that have read a table are not shared
            self.memory.admit(query, planned, getattr(plan, "ticks_per_second", None))
        for table in getattr(plan, "tables", ()):
            if table.data is not None:
                self.load(table.name, table.data)
        by_time = getattr(plan, "ordered", True) if ordered is None else ordered
        found = getattr(plan, "service", USUAL) if service is None else service
        check_service(found)
        self.graph.add(query, planned, since, ordered=by_time, service=found)
        self._ticks[query] = getattr(plan, "ticks_per_second", None)
        given = getattr(plan, "importance", 1.0) if importance is None else importance
        self.graph.quality.importance[query] = given
        self._changed = True
        self._rewire()

    def has_table(self, table: str) -> bool:
        """Whether a query reads this table, or rows of it were loaded."""
        return table in self.graph.tables

    def load(self, table: str, data: Rows) -> None:
        """Load the rows of a table, which never change; a query that reads it waits until then.

        A query whose tables contain their rows (`headrace.TableDef`) loads them when it is added.
        """
        rows = rows_of(table, data)
        node = self.graph.tables.get(table) or self.graph.declare_table(Table(table, rows.schema))
        node.load(rows)
        for after in node.successors:
            after.fresh = True

    def reload(self, table: str, data: Rows, *, at: int | None = None) -> int | None:
        """Give a table other rows.

        A table that was declared to change (`TableDef(…, changes=True)`) has them from the instant `at` on,
        or as soon as possible: from the first instant that has not been answered for. Before it, the table
        has its old rows. Returns the instant, or None if nothing changes.

        Any other table has them for rows of streams that are processed from now on. Pairs of earlier rows
        with the old rows of the table stay as they were answered, and end when they would have. Where that
        would not be exact, an error says why (HR-G025): if the table is aggregated, or joined with rows that
        may be withdrawn later, such as groups.
        """
        rows = rows_of(table, data)
        if at is not None:
            check_instant(at, "at")
        self.run()
        node, since = table_named(self.graph, table), None
        if not node.loaded:
            self.load(table, rows)
            return None
        if changes(self.graph, node):
            self._changed |= compact(node)
            since = change_table(self.graph, node, rows, at, self.now)
            changed = since is not None
        else:
            changed = reload_table(self.graph, node, rows)
            self._changed |= changed
        if changed:
            for each in self.graph.nodes:
                each.fresh = True
        return since

    def remove(self, query: str) -> None:
        """Remove a query; operators that no other query uses are freed."""
        self.graph.remove(query)
        self._ticks.pop(query, None)
        self.graph.quality.importance.pop(query, None)
        self._changed = True
        self._rewire()

    def pause(self, query: str) -> None:
        """Hold the results of a query until `resume`: they wait in memory and in snapshots."""
        self.graph.sink(query).paused = True

    def resume(self, query: str) -> None:
        """Let `drain` take the results of a paused query again, those that were held first."""
        self.graph.sink(query).paused = False

    def held(self, query: str) -> int | None:
        """How many rows of results a paused query holds; None if it is not paused."""
        sink = self.graph.sink(query)
        return sink.reader.rows if sink.paused else None

    def _rewire(self) -> None:
        """Call when the graph has changed: every part reads it again."""
        self._structure = self._shape = None
        self.scheduling.rewire()
        self.memory.rewire()
        self.optimizer.rewire()
        self._loop.agenda.use(self.graph.nodes)
        self.streams.rewire()

    # --------------------------------------------------------------------------------------------- running

    def push(
        self,
        stream: str,
        data: object,
        times: ArrayLike | pa.Array | None = None,
        *,
        now: int | None = None,
        learn: bool = True,
        cells: Cells | None = None,
    ) -> Batch:
        """Put rows into a stream, arriving at `now`. Nothing runs yet.

        `data` is a record batch with exactly the columns of the stream, or anything that holds a table (an
        Arrow table, a DataFrame, a list of dicts, a dict of lists), whose columns are matched by name and
        cast. Rows of an external stream need `times`, unless the stream declares a time column that holds
        ticks: timestamps, or integers if times are sequence numbers.

        Returns the rows that went in. Push all rows of an instant before you run it: the heartbeats that
        these rows prove hold for later rows. If it depends on other rows of the instant whether a row is
        late, as for sessions under `admit`, rows wait until the instant runs, and all that may go in are
        returned. With `learn=False` bounds do not learn from these rows; call `streams.observe` for that.
        `cells` are those of the rows' sources (`headrace.state.source_cells`), if the rows lack that column.
        """
        source = self.graph.source(stream)
        rows = rows_for(source, data)
        return self.streams.take(stream, rows, times_for(source, rows, times), now, learn, cells)

    def advance(self, now: int) -> None:
        """Set the wall clock to `now` (never back), make the periodic ETS that are due, and run."""
        check_instant(now, "now")
        self.streams.enter()
        self.streams.set_clock(now)
        self.streams.apply_promises()
        self.streams.tick()
        if self.scheduling.level == "memory":
            self.scheduling.relabel()
        self.run()
        self.streams.settle()

    def run(self) -> None:
        """Run until no operator can do anything and no source can help an operator that waits."""
        self.streams.enter()
        loop, orders, manager = self._loop, self.optimizer.orders, self.memory.manager
        if manager is not None:
            manager.look()
        held = bool(orders.pending)
        if manager is not None or held or self.scheduling.level != "operator":
            loop.agenda.stir_all()
        loop.run()
        self.optimizer.adapting.look(self.memory.spare)
        while orders.pending and orders.settle(self.graph):
            self._reordered = True
            self._rewire()
            loop.run()
        account_waiting(loop.agenda.touched(), loop.now)
        if held and not orders.pending:
            loop.agenda.stir_all()
        if manager is not None:
            manager.settle()

    def drain(self, query: str | None = None) -> list[Batch]:
        """Run, then take the results of a query; the name may be left out if there is only one."""
        self.run()
        return self.graph.sink(query).drain()

    def drain_with_promises(self, query: str | None = None) -> tuple[list[Batch], list[Punctuation]]:
        """The results of a query, and the punctuations on attributes that hold for its later results."""
        return self.drain(query), self.graph.sink(query).promises

    def drain_all(self) -> dict[str, list[Batch]]:
        """Run, then take the results of every query."""
        self.run()
        return {name: sink.drain() for name, sink in self.graph.sinks.items()}

    def drain_late(self) -> list[Late]:
        """Rows that were late since the last call."""
        return self.streams.drain_late()

    def drain_rejected(self) -> list[Rejected]:
        """Input since the last call that did not fit the schema of its stream."""
        return self.streams.drain_rejected()

    # -------------------------------------------------------------------------------------------- looking in

    def complete_until(self, query: str | None = None) -> int:
        """The instant up to which the results of a query are complete; its top operator is `Waiting`."""
        arc = self.graph.sink(query).arc
        top = next(node.operator for node in self.graph.nodes if node.operator.output is arc)
        assert isinstance(top, Waiting)
        return top.reach()

    def explain(self, query: str, format: str = "text") -> Explanation:
        """The plan of a query, or of all: where rows are sorted, which operators may wait, what runs next.

        `format` is "text", "mermaid", "svg" or "html"; a notebook draws the diagram for any format.
        """
        self.graph.sink(query)
        return self._explained([query], lambda span: show(self.graph.plan_of(query), span), format)

    def _explained(
        self, queries: list[str], plans: Callable[[Span], str], format: str = "text"
    ) -> Explanation:
        """Durations have units if the queries define the length of a tick."""
        span = self._span_of(queries)
        arcs = self.scheduling.arcs
        diagram = graph_diagram(self.graph, queries, arcs, span)
        nodes = dict.fromkeys(node for query in queries for node in self.graph.nodes_of(query))
        table = self.scheduling.table.explained(nodes)
        sections = explained_sections(self.graph, queries, plans(span), table, arcs, span)
        sections += order_section(self.graph, queries)
        return Explanation(diagram, sections + self.optimizer.explained(queries), format)

    def _span_of(self, queries: Sequence[str]) -> Span:
        """How durations of these queries are written: in units if all of them count the same ticks."""
        domains = {self._ticks.get(query) for query in queries}
        return in_units(domains.pop() if len(domains) == 1 else None)

    def _repr_html_(self) -> str:
        """The graph of all queries, as a notebook shows it."""
        queries = list(self.graph.sinks)

        def plans(span: Span) -> str:
            return "\n\n".join(f"{each}\n{show(self.graph.plan_of(each), span)}" for each in queries)

        return self._explained(queries, plans)._repr_html_()

    def metrics(self) -> Metrics:
        """Counts, sizes and waiting times of every node and source."""
        self.streams.enter()
        found = measure(self.graph, self.now)
        return replace(found, orders=self.optimizer.joins(), conditions=self.optimizer.conditions())

    def unfinished(self) -> tuple[Unfinished, ...]:
        """The answers that wait, with their values so far and the streams that could still change them.

        They are found with a copy of all state; the next snapshot must be a full one (`needs_full_snapshot`).
        """
        self.run()
        copy = copy_of(self)
        self._changed = True
        return tuple(unfinished(self, copy))

    @property
    def shape(self) -> Shape:
        """The operators and what each reads; computed again only after the graph has changed."""
        if self._shape is None:
            self._shape = shape_of(self.graph, self._span_of)
        return self._shape

    # ------------------------------------------------------------------------------------------- snapshots

    @property
    def version(self) -> int:
        """The version of the last snapshot; 0 before the first."""
        return self._version

    def snapshot(self, since: int | None = None) -> Snapshot:
        """All state, or what changed since the snapshot with version `since` (the last one taken)."""
        if since is not None and since != self._version:
            raise GraphError(
                "HR-G004",
                f"cannot count from version {since}: the last snapshot is {self._version}",
                hint="take a full snapshot",
            )
        if since is not None and self._changed:
            raise GraphError(
                "HR-G004",
                f"the queries are not those of version {since}",
                hint="queries were added, removed or changed: take a full snapshot (needs_full_snapshot)",
            )
        self.streams.enter()
        if any(s.admission.late or s.admission.rejected for s in self.graph.sources.values()):
            raise GraphError(
                "HR-G008",
                "late or rejected rows are waiting to be taken",
                hint="drain_late() and drain_rejected() before a snapshot: it does not hold them",
            )
        self._version += 1
        taken = snapshot_graph(self.graph, self._parts(), self._version, since, self.now)
        if since is None or self._reordered:
            taken.chunks[STRUCTURE] = self._structured().to_chunk()
        self._changed = self._reordered = self._apart = False
        return taken

    @property
    def needs_full_snapshot(self) -> bool:
        """Whether the next snapshot should be a full one: queries, joins or tables have changed."""
        return self._changed or self._reordered or self._apart

    def set_apart(self) -> None:
        """Bounds or settings, which no snapshot contains, have changed: twins with others must not catch up.

        The next snapshot should then be a full one (`needs_full_snapshot`), from which they begin again.
        """
        self._apart = True

    @property
    def structure(self) -> str:
        """A digest of the graph: of its queries, and of what each node computes."""
        return self._structured().digest()

    def _structured(self) -> Structure:
        if self._structure is None:
            self._structure = structure_of(self.graph, self._span_of)
        return self._structure

    def _parts(self) -> dict[str, Part]:
        """The parts of a snapshot besides the graph."""
        keeper, orders, adapting = self.streams.keeper, self.optimizer.orders, self.optimizer.adapting
        parts: dict[str, Part] = {} if keeper is None else {TIMEKEEPER: keeper}
        parts |= {ORDERS: orders} if orders.log or orders.pending else {}
        parts |= {LOOKS: adapting} if adapting.every is not None else {}
        return parts if self.memory.manager is None else {**parts, MEMORY: self.memory.manager}

    def restore(self, snapshots: Snapshot | Iterable[Snapshot]) -> None:
        """Restore a full snapshot and its increments, in order, from an engine with the same queries."""
        self._apply(snapshots, None)

    def adopt(self, snapshots: Snapshot | Iterable[Snapshot], *, reset: Collection[str] = ()) -> Adopted:
        """Restore a full snapshot and its increments from an engine whose queries may have been others.

        Queries are matched by name. A query goes on if each of its operators that keeps something has a
        counterpart that computes the same; filters and columns above them may differ, and so may bounds,
        budgets and rules. Otherwise an error names what changed (HR-G022), and nothing has happened. Queries
        in `reset` and queries that the snapshot does not have begin empty; the state of queries that only the
        snapshot has is freed. Heartbeats of sources never go back, and their counters continue. For an engine
        that has only just been built.
        """
        chain = [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)
        check_chain(chain, None)
        old = structure_in(chain)
        if old is None:
            if reset:
                raise GraphError(
                    "HR-G022",
                    "the snapshot is of an earlier version: it does not say what its state belongs to",
                    place=next(iter(reset)),
                    hint="restore it once without a reset; the next snapshot says it",
                )
            self._apply(chain, None)
            return Adopted(kept=tuple(self.graph.sinks), since=dict(self.graph.since))
        adoption = Adoption(self.graph, chain, old, reset, self._span_of)
        adoption.check()
        adoption.separate()
        counterpart = adoption.carry_out()
        orders = adoption.orders()
        if orders is not None:
            self.optimizer.orders.apply(orders)
        self._rewire()
        transfer = Transfer(self.graph, old, counterpart)
        for snapshot in chain:
            transfer.apply(snapshot, last=snapshot is chain[-1])
        self._version, self._loop.now = chain[-1].version, chain[-1].now
        resume_extras(self._parts(), adoption, chain)
        self._rewire()
        self.optimizer.orders.resume(self.graph, orders)
        transfer.settle()
        for node in self.graph.nodes:
            node.fresh = True
        self._changed, self._reordered = self.structure != old.digest(), False
        self._apart = False
        return adoption.adopted

    def catch_up(self, snapshots: Snapshot | Iterable[Snapshot]) -> None:
        """Apply the increments that a twin of this engine has written since the last snapshot of this one.

        No rows may have been pushed here since then.
        """
        self._apply(snapshots, self._version)

    def _apply(self, snapshots: Snapshot | Iterable[Snapshot], since: int | None) -> None:
        """Apply a chain of snapshots, including the changes of join order that they contain."""
        chain = [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)
        check_chain(chain, since)
        known = structure_in(chain) is not None
        reordered = self.optimizer.orders
        for snapshot in chain:
            orders = decode(snapshot.chunks[ORDERS]) if ORDERS in snapshot.chunks else None
            if orders is not None and reordered.follow(self.graph, orders):
                self._rewire()
            columns = columns_of(self.graph) if since is None else {}  # a twin has the same columns
            restore_graph(self.graph, self._parts(), snapshot, columns)
            reordered.resume(self.graph, orders)
            self._version = snapshot.version
            self._loop.now = snapshot.now
        self._changed, self._reordered = since is None and not known, False
        self._apart = False
        self._rewire()
        for node in self.graph.nodes:
            node.fresh = True
