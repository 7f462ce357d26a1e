"""push, advance, drain: the whole engine behind a dozen calls (`design.md` §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.drawing import Explanation
from headrace.engine.adapting import LOOK, Adapting
from headrace.engine.asking import Asking
from headrace.engine.explain import explained_sections, graph_diagram
from headrace.engine.metrics import Metrics, account_waiting, measure
from headrace.engine.quality import Setting, in_force, resize, settings
from headrace.engine.reordering import GAIN, Reordering, Reorderings
from headrace.engine.snapshot import (
    LOOKS,
    MEMORY,
    ORDERS,
    Snapshot,
    check_chain,
    columns_of,
    restore_graph,
    snapshot_graph,
)
from headrace.engine.spilling import spill, use_shelf
from headrace.engine.timekeeper import Heartbeats, Timekeeper
from headrace.errors import BudgetError, GraphError, InputError, ScheduleError
from headrace.flow.batch import Batch, Times
from headrace.flow.punctuations import to_bytes, to_plain
from headrace.flow.shelf import Shelf
from headrace.flow.state import Part, decode
from headrace.graph.admission import Rules
from headrace.graph.enhanced import PROPAGATION, EtsArc, wire
from headrace.graph.graph import Graph
from headrace.graph.levels import LEVELS, apply_labels
from headrace.graph.node import Node
from headrace.graph.origins import set_gates
from headrace.graph.sink import Sink
from headrace.graph.source import SourceNode
from headrace.graph.tablenode import Rows, rows_of
from headrace.memory.accounting import account
from headrace.memory.budget import budget_bytes, machine_bytes
from headrace.memory.manager import POLICIES, Manager, Shortage
from headrace.operators.history import Entries
from headrace.plan.nodes import Plan, Source, Table, TimeKind
from headrace.plan.show import show
from headrace.plan.spans import Span, in_units
from headrace.scheduling.agenda import Agenda
from headrace.scheduling.executor import Executor
from headrace.scheduling.strategies import strategy as named_strategy
from headrace.scheduling.table import StateTable
from headrace.time.ets import Policy, Promise, StrongestPromise
from headrace.time.punctuate import Late, Rejected
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

T = TypeVar("T")


class Planned(Protocol):
    """What has a plan, such as a query made of text."""

    @property
    def plan(self) -> Plan:
        """The plan, a stream's."""
        ...


class Engine:
    """Runs continuous queries over pushed rows.

    `push` puts rows into a source's buffer; `run`, and with it `advance` and `drain`, executes until
    nothing more can be proven. After `run`, no row stays in a buffer whose release is provable from the
    heartbeats of the sources at the current instant.
    """

    def __init__(
        self,
        *,
        strategy: str = "auto",
        propagation: str = "eqg",
        now: int = 0,
        shelf: Shelf | None = None,
    ) -> None:
        if propagation not in PROPAGATION:
            known = ", ".join(PROPAGATION)
            raise ScheduleError("HR-S002", f"unknown propagation {propagation!r}", hint=f"known: {known}")
        self.now = now
        self.propagation = propagation
        self.graph = Graph(lambda: self.now)
        self._ticks: dict[str, int | None] = {}
        self.table = StateTable(named_strategy(strategy), propagation == "eqg")
        self.arcs: list[EtsArc] = []
        self.keeper: Timekeeper | None = None
        self.level = "operator"
        self._executor = Executor(self.table, lambda source: source.demand(self.now))
        self._version = 0
        self.shelf = shelf
        self.manager: Manager | None = None
        self._read_late: list[SourceNode] = []
        self._agenda = Agenda()
        self._asking = Asking(self.graph, self._agenda)
        self._entering: dict[str, SourceNode] = {}
        self._spoken: set[str] = set()
        self._periodic: list[SourceNode] = []
        self._orders = Reorderings()
        self._adapting = Adapting(self.graph, self._orders)

    def declare(
        self,
        stream: Source,
        *,
        policy: Policy | None = None,
        promise: Promise | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Say how a stream makes its ETS and what its rows may do, before the first query mentions it."""
        source = self.graph.declare(stream)
        if rules is not None and rules != source.rules and source.arc.readers:
            raise GraphError(
                "HR-G009",
                "a query reads this stream under other rules",
                place=stream.name,
                hint="declare a stream before the first query that reads it",
            )
        source.policy = policy or source.policy
        source.promise = promise or source.promise
        source.admission.rules = rules or source.rules
        source.arc.ordered = not source.rules.disordered
        self._note_sources()

    def _note_sources(self) -> None:
        """Know which sources make ETS by themselves, and who asks whom."""
        self._periodic = [s for s in self.graph.sources.values() if s.policy.interval != MAX_TIME]
        self._asking.use(self.keeper)

    def manage(
        self,
        heartbeats: Heartbeats,
        streams: Mapping[Source, Rules],
        promises: Mapping[str, Promise] | None = None,
    ) -> None:
        """Put an input manager in front of some streams: heartbeats from bounds, rows in any order.

        `heartbeats` names the streams; each gets its promise from it. Where `promises` has one for a stream
        too, the larger heartbeat holds.
        """
        if self.keeper is not None:
            raise GraphError(
                "HR-G011",
                "an engine has one input manager",
                hint="declare the bounds of all streams together: one may vouch for another",
            )
        self.keeper = Timekeeper(heartbeats)
        places = {name: i for i, name in enumerate(heartbeats.streams)}
        for stream, rules in streams.items():
            if stream.name not in places:
                known = ", ".join(places)
                raise GraphError(
                    "HR-G007", "no bounds for this stream", place=stream.name, hint=f"bounds: {known}"
                )
            promise: Promise = self.keeper.promise_of(places[stream.name])
            if promises and stream.name in promises:
                promise = StrongestPromise((promise, promises[stream.name]))
            self.declare(stream, promise=promise, rules=rules)

    def add(self, query: str, plan: Plan | Planned) -> None:
        """Add a query; it answers for rows pushed from now on, and not for those pushed before."""
        planned = plan if isinstance(plan, Plan) else getattr(plan, "plan", None)
        if not isinstance(planned, Plan):
            raise GraphError(
                "HR-G012",
                f"a query is a plan, not {type(plan).__name__}",
                place=query,
                hint="of text: headrace.query(text, streams)",
            )
        self.run()
        for table in getattr(plan, "tables", ()):
            if table.data is not None:
                self.load(table.name, table.data)
        self.graph.add(query, planned)
        self._ticks[query] = getattr(plan, "ticks_per_second", None)
        self._rewire()

    def load(self, table: str, data: Rows) -> None:
        """Give a table its rows, once and for all; what reads it waits until then.

        A query whose tables have their rows (`headrace.TableDef`) brings them along when it is added.
        """
        rows = rows_of(table, data)
        node = self.graph.tables.get(table) or self.graph.declare_table(Table(table, rows.schema))
        node.load(rows)
        for after in node.successors:
            after.fresh = True

    def remove(self, query: str) -> None:
        """Remove a query; what no other query uses is freed."""
        self.graph.remove(query)
        self._ticks.pop(query, None)
        self._rewire()

    def _rewire(self) -> None:
        self.arcs = wire(self.graph, self.propagation)
        if self.shelf is not None:
            use_shelf(self.graph, self.shelf)
        apply_labels(self.graph, LEVELS[self.level](self.graph))
        set_gates(self.graph)
        sources = self.graph.sources.values()
        for source in sources:
            source.catch_up = self._catch_up
        self._read_late = [source for source in sources if source.read_until is not None]
        self.table.forget()
        self._adapting.use()
        self._agenda.use(self.graph.nodes)
        self._note_sources()

    def set_level(self, level: str) -> None:
        """Heartbeats per `query`, per `operator`, or memory-aware (`memory`); may change while running."""
        if level not in LEVELS:
            raise ScheduleError("HR-S003", f"unknown level {level!r}", hint=f"known: {', '.join(LEVELS)}")
        self.level = level
        apply_labels(self.graph, LEVELS[level](self.graph))
        set_gates(self.graph)
        self._agenda.stir_all()
        self._asking.use(self.keeper)

    def push(
        self,
        stream: str,
        data: pa.RecordBatch,
        times: ArrayLike | pa.Array | None = None,
        *,
        now: int | None = None,
        learn: bool = True,
    ) -> Batch:
        """Put rows into a stream, arriving at `now`; external streams bring their times. Nothing runs yet.

        Returns the rows that went in. Push all rows of an instant before it is run: heartbeats that their
        arrival proves hold for what comes after. Where whether one is late depends on the others, as with
        sessions under `admit`, they wait until then, and all that may go in are returned. Without `learn`
        these rows teach the bounds nothing, because `observe` tells of them.
        """
        source = self._source(stream)
        if now is not None and now > self.now:
            self._enter()
            self.now = now
        self._spoken.add(stream)
        batch = source.push(data, times, self.now, learn=learn)
        if source.waiting:
            self._entering[stream] = source
        self._note(stream, batch)
        self._wake(source)
        return batch

    def read_until(self, stream: str, instant: int) -> None:
        """All that reached the source of an external stream by `instant` of the clock has been pushed.

        For sources at which rows wait to be read. From the first call on, the clock promises nothing about
        the stream beyond the last such instant, rows of other streams promise nothing about it before it has
        been read up to the instant at which they were, and its rows are judged by the heartbeat that was in
        force when `advance` was last called: no row is late because it was read late. Before that, and for
        streams of which this is never said, a row reaches its source when it is pushed. `MIN_TIME` says that
        nothing is known yet.
        """
        if instant != MIN_TIME:
            _check_instant(instant, stream)
        source = self._source(stream)
        if source.kind is not TimeKind.EXTERNAL:
            return
        if source.read_until is None:
            self._read_late.append(source)
        source.read_up_to(instant)
        if self.keeper is not None:
            self.keeper.read_up_to(stream, instant)

    def observe(self, stream: str, times: ArrayLike) -> None:
        """Rows with these times arrived now on a stream of which this engine has a part only."""
        source = self._source(stream)
        source.observe(np.asarray(times, np.int64), self.now)
        self._asking.came(source)

    def feed(self, stream: str, batch: Batch) -> None:
        """Put in what another engine answered: rows in order, with the ends and signs of a relation."""
        source = self._source(stream)
        source.feed(batch)
        self._note(stream, batch)
        self._wake(source)

    def _note(self, stream: str, batch: Batch) -> None:
        if self.manager is not None:
            self.manager.arrived(stream, batch)

    def heartbeat(self, stream: str, time: int) -> None:
        """The source itself promises that its rows to come are later than `time`."""
        _check_instant(time, stream)
        self._enter()
        self._source(stream).heartbeat(time)

    def punctuate(self, stream: str, punctuation: Punctuation) -> None:
        """The source itself promises that no later row matches `punctuation`."""
        source = self._source(stream)
        self._enter()
        if not punctuation.patterns:
            source.heartbeat(punctuation.until)
            return
        to_bytes(to_plain(punctuation))  # refused now rather than by the next snapshot
        source.close(punctuation)
        self._wake(source)

    def end(self, stream: str) -> None:
        """Nothing more comes on a stream."""
        source = self._source(stream)
        self._enter()
        source.end()

    def advance(self, now: int) -> None:
        """The wall clock says `now` (never back); periodic ETS are made, and all that can run runs."""
        _check_instant(now, "now")
        self._enter()
        self.now = max(self.now, now)
        for source in self._periodic:
            source.tick(self.now)
        if self.level == "memory":
            self.set_level(self.level)
        self.run()
        for source in self._read_late:
            source.settle(self.now)

    def run(self) -> None:
        """Execute until nothing can run and no source can help an operator that waits."""
        self._enter()
        if self.manager is not None:
            self.manager.look()
        held = bool(self._orders.pending)
        if self.manager is not None or held or self.level != "operator":
            self._agenda.stir_all()
        self._run()
        self._adapting.look(self._spare)
        while self._orders.pending and self._orders.settle(self.graph):
            self._rewire()
            self._run()
        account_waiting(self._agenda.touched(), self.now)
        if held and not self._orders.pending:
            self._agenda.stir_all()
        if self.manager is not None:
            self.manager.settle()

    def _run(self) -> None:
        while True:
            node = self._agenda.ready()
            if node is not None:
                self._executor.run(node)
            elif not self._asking.ask(self.now):
                break

    def _enter(self) -> None:
        """Let in the rows of this instant that are judged together."""
        if not self._entering:
            return
        waiting = [s for s in self.graph.sources.values() if s.name in self._entering]
        self._entering = {}
        if any(source.must_catch_up for source in waiting):
            self._catch_up()
        for source in waiting:
            source.announce()
        for source in waiting:
            source.enter(self.now)
            self._wake(source)
        for source in waiting:
            source.admission.judged()

    def _catch_up(self) -> None:
        """Answer for all that was in force before the rows of this instant, which some of them are late for.

        No source is asked for more: heartbeats of this very instant hold for what comes after it.
        """
        for source in self.graph.sources.values():
            source.heartbeat(source.in_force(self.now))
        while (node := self._agenda.ready()) is not None:
            self._executor.run(node, ask=False)

    def _wake(self, source: SourceNode) -> None:
        """Something came to a source."""
        self._asking.came(source)
        for node in source.successors:
            node.fresh = True

    def drain(self, query: str | None = None) -> list[Batch]:
        """Run, then take the answers of a query (of the only one, if there is one)."""
        self.run()
        return self._sink(query).drain()

    def drain_all(self) -> dict[str, list[Batch]]:
        """Run, then take the answers of every query."""
        self.run()
        return {name: sink.drain() for name, sink in self.graph.sinks.items()}

    def drain_late(self) -> list[Late]:
        """Rows that came too late since the last call."""
        self._enter()
        return [late for source in self._spoken_of() for late in _emptied(source.admission.late)]

    def drain_rejected(self) -> list[Rejected]:
        """Rows that were no rows of their stream since the last call."""
        rejected = [r for source in self._spoken_of() for r in _emptied(source.admission.rejected)]
        self._spoken = {s.name for s in self._spoken_of() if s.admission.late}
        return rejected

    def _spoken_of(self) -> list[SourceNode]:
        """The sources that may have late or rejected rows to tell of, in their order."""
        if not self._spoken:
            return []
        return [source for name, source in self.graph.sources.items() if name in self._spoken]

    def reject(self, stream: str, raw: Iterable[str], code: str, reason: str) -> None:
        """Account for input that could not be made into rows."""
        admission = self._source(stream).admission
        self._spoken.add(stream)
        rejected = Rejected(stream, code, reason, raw=tuple(raw))
        admission.rows_in += len(rejected)
        admission.reject(rejected)

    def shed(self, stream: str, rows: int) -> None:
        """Account for rows that were given up because there were too many."""
        admission = self._source(stream).admission
        admission.rows_in += rows
        admission.rows_shed += rows

    def set_strategy(self, name: str, nodes: Iterable[Node | str] | None = None) -> None:
        """Swap the state table, for all or for some nodes (or their names); from the next step on."""
        chosen = None if nodes is None else [self._node(node) for node in nodes]
        self.table.choose(named_strategy(name), chosen)

    def set_break(self, node: Node | str) -> None:
        """Cut the graph at the output of a node."""
        self.table.set_break(self._node(node))

    def unset_break(self, node: Node | str) -> None:
        """Undo `set_break`."""
        self.table.unset_break(self._node(node))

    def _node(self, node: Node | str) -> Node:
        if isinstance(node, Node):
            return node
        names = {each.name: each for each in self.graph.nodes}
        if node not in names:
            raise ScheduleError("HR-S004", f"no operator {node!r}", hint=f"operators: {', '.join(names)}")
        return names[node]

    def settings(self) -> list[Setting]:
        """Windows and granularities that may change: bounds, value, history, who uses them."""
        return settings(self.graph)

    def resize(self, node: Node | str, value: int, *, at: int | None = None) -> int:
        """Change a window or a granularity for rows with time ≥ `at`; without it, as soon as can be.

        Returns the instant from which it holds: a granularity changes at a multiple of what it was.
        """
        if at is not None:
            _check_instant(at, "at")
        self._agenda.stir_all()
        return resize(self._node(node), value, at)

    def reoptimize(
        self, query: str, order: Sequence[int] | None = None, *, gain: float = GAIN
    ) -> Reordering | None:
        """Join the relations of a query in the order that what they hold now makes cheapest, or in `order`.

        Answers stay the same. None if there is no tree of three or more relations, if too little would be
        gained, or if it cannot be done: others share the joins, or a punctuation has closed keys. The new
        order takes over once all joins have answered up to one instant, which is at once if none lags.
        """
        self._sink(query)
        self.run()
        found = self._orders.decide(self.graph, query, order, gain)
        self.run()
        return None if found is None else self._orders.done.get(query, found)

    def reoptimize_every(self, rows: int | bool = LOOK) -> None:
        """From now on look at the order of joins and of conditions by itself, after `rows` rows or more.

        Joins as `reoptimize` does, if two looks want the same order and the move pays for itself; conditions
        of a selection: what rules out most for its cost comes first. Answers stay the same. False: no more.
        """
        if rows is True:
            rows = LOOK
        if rows is not False and rows < 1:
            raise GraphError("HR-G018", f"{rows} rows between two looks", hint="1 or more, or False")
        self._adapting.every = rows or None
        self._adapting.use()

    def _spare(self) -> float:
        """Bytes of the budget that are free."""
        return inf if self.manager is None else self.manager.budget - account(self.graph, tight=True).own

    def spill(self, bytes: int) -> int:
        """Put about `bytes` of state on the shelf; returns how many left memory.

        The operators that hold most go first. Answers stay the same, they only cost more; 0 if nothing that
        is held can go.
        """
        return spill(self.graph, self.shelf, bytes)

    def budget(
        self,
        size: int | str | None,
        *,
        policy: Shortage = "fail",
        whole: Callable[[], int] = machine_bytes,
        measure_at_snapshots: bool = False,
    ) -> int:
        """Hold what the queries keep within a budget: bytes, '64 MB', or a share of `whole` such as '25 %'.

        Windows that have bounds get smaller when more would be needed, and return to their best when it is
        over. When even the least does not fit, `policy` says what to do: `fail` with words, or `spill` state
        to the shelf. With `measure_at_snapshots` what rows cost is learned when a snapshot is taken and kept
        in it, so that rows that are pushed again after a restore lead to the same choices. None: no budget.
        Returns the bytes.
        """
        if size is None:
            self.manager = None
            return 0
        if policy not in POLICIES:
            raise BudgetError(
                "HR-M003", f"unknown policy {policy!r}", place="budget", hint=f"known: {', '.join(POLICIES)}"
            )
        bytes = budget_bytes(size, whole)
        if policy == "spill" and self.shelf is None:
            self.spill(0)
        if self.manager is None:
            self.manager = Manager(
                self.graph, bytes, policy, self.spill, measure_at_snapshots=measure_at_snapshots
            )
        self.manager.budget, self.manager.policy = bytes, policy
        return bytes

    def histories(self, query: str) -> dict[Plan, Entries]:
        """The windows and granularities of a query, by the nodes of its plan, as pairs (t, value).

        Rows with time ≥ t got the value. With them the answer can be recomputed exactly (002, §4).
        """
        self._sink(query)
        return self.graph.quality.histories(query)

    def in_force(self, query: str, times: ArrayLike) -> dict[Plan, Times]:
        """The window sizes and granularities of a query in force at some times, such as its answers'.

        By the nodes of its plan, a value for each time: what rows of that time got (002, §4).
        """
        self._sink(query)
        return in_force(self.histories(query), np.asarray(times, np.int64))

    def show_table(self) -> str:
        """The state table as the papers print it."""
        return self.table.show(self.graph.nodes)

    def explain(self, query: str, format: str = "text") -> Explanation:
        """What runs under a name: the plan with where rows are put in order, who may wait, who runs next.

        `format` is "text", "mermaid", "svg" or "html"; a notebook draws it whatever the format.
        """
        self._sink(query)
        return self._explained([query], lambda span: show(self.graph.plan_of(query), span), format)

    def _explained(
        self, queries: list[str], plans: Callable[[Span], str], format: str = "text"
    ) -> Explanation:
        """Lengths of time are shown in units where the queries say what a tick is."""
        domains = {self._ticks.get(query) for query in queries}
        span = in_units(domains.pop() if len(domains) == 1 else None)
        arcs = self.arcs if self.propagation == "eqg" else []
        diagram = graph_diagram(self.graph, queries, arcs, span)
        sections = explained_sections(self.graph, queries, plans(span), self.show_table(), arcs)
        sections += self._orders.explained(queries)
        sections += self._adapting.explained(n for query in queries for n in self.graph.nodes_of(query))
        return Explanation(diagram, sections, format)

    def _repr_html_(self) -> str:
        """The graph of all queries, as a notebook shows it."""
        queries = list(self.graph.sinks)

        def plans(span: Span) -> str:
            return "\n\n".join(f"{each}\n{show(self.graph.plan_of(each), span)}" for each in queries)

        return self._explained(queries, plans)._repr_html_()

    def metrics(self) -> Metrics:
        """Counts, sizes and waiting times of every node and source."""
        self._enter()
        orders = {**self._orders.done, **self._orders.pending}
        return replace(
            measure(self.graph, self.now),
            orders={query: str(order) for query, order in orders.items() if query in self.graph.sinks},
            conditions=self._adapting.conditions(),
        )

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
        self._enter()
        if any(s.admission.late or s.admission.rejected for s in self.graph.sources.values()):
            raise GraphError(
                "HR-G008",
                "late or rejected rows are waiting to be taken",
                hint="drain_late() and drain_rejected() before a snapshot: it does not hold them",
            )
        self._version += 1
        return snapshot_graph(self.graph, self._extra(), self._version, since, self.now)

    def _extra(self) -> dict[str, Part]:
        parts: dict[str, Part] = {} if self.keeper is None else {"timekeeper": self.keeper}
        parts |= {ORDERS: self._orders} if self._orders.log or self._orders.pending else {}
        parts |= {LOOKS: self._adapting} if self._adapting.every is not None else {}
        return parts if self.manager is None else {**parts, MEMORY: self.manager}

    def restore(self, snapshots: Snapshot | Iterable[Snapshot]) -> None:
        """Take over a full snapshot and its increments, in order, of an engine with the same queries."""
        self._apply(snapshots, None)

    def catch_up(self, snapshots: Snapshot | Iterable[Snapshot]) -> None:
        """Take over the increments that a twin of this engine has taken since this one's last snapshot.

        Nothing may have been pushed here since then.
        """
        self._apply(snapshots, self._version)

    def _apply(self, snapshots: Snapshot | Iterable[Snapshot], since: int | None) -> None:
        chain = [snapshots] if isinstance(snapshots, Snapshot) else list(snapshots)
        check_chain(chain, since)
        for snapshot in chain:
            orders = decode(snapshot.chunks[ORDERS]) if ORDERS in snapshot.chunks else None
            if orders is not None and self._orders.follow(self.graph, orders):
                self._rewire()
            columns = columns_of(self.graph) if since is None else {}  # a twin has the same columns
            restore_graph(self.graph, self._extra(), snapshot, columns)
            self._orders.resume(self.graph, orders)
            self._version = snapshot.version
            self.now = snapshot.now
        self._rewire()
        for node in self.graph.nodes:
            node.fresh = True

    def _source(self, stream: str) -> SourceNode:
        source = self.graph.sources.get(stream)
        if source is None:
            known = ", ".join(self.graph.sources) or "none"
            raise GraphError("HR-G005", "no query reads such a stream", place=stream, hint=f"known: {known}")
        return source

    def _sink(self, query: str | None) -> Sink:
        sinks = self.graph.sinks
        if query is None and len(sinks) == 1:
            return next(iter(sinks.values()))
        if query is None or query not in sinks:
            known = ", ".join(sinks) or "none"
            raise GraphError("HR-G003", "no such query", place=str(query), hint=f"running: {known}")
        return sinks[query]


def _check_instant(instant: int, place: str) -> None:
    if isinstance(instant, bool) or not isinstance(instant, (int, np.integer)) or abs(instant) > MAX_TIME:
        raise InputError(
            "HR-I012", f"{instant!r} is no instant", place=place, hint="instants are int64 ticks"
        )


def _emptied(kept: list[T]) -> list[T]:
    taken = kept[:]
    kept.clear()
    return taken
