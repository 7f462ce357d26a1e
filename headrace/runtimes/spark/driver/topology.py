"""Divides queries into hosts: by the key that partitions them, in two levels where a query needs two keys.

Queries that can be partitioned alike run in one host, as one graph per shard with shared sub-plans. A stream
is read once, and its rows go to one shard of each host that reads it.

    level 0    host by auction    host by bidder    host with one shard
    level 1                       host by seller
"""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import pyarrow as pa

from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning, SparkError
from headrace.pipeline import PipelineQuery
from headrace.plan.analysis.candidate_keys import Key
from headrace.plan.analysis.partials import Partials, in_two_steps
from headrace.plan.analysis.partitioning import MOST_WAYS, Keys, Partitioning, partition, ways
from headrace.plan.analysis.stages import Stage, stages
from headrace.plan.nodes.core import Inlet, Plan, Source, Table, Union
from headrace.plan.nodes.quality import adaptable
from headrace.plan.nodes.trees import exchange, sources_of, walk
from headrace.runtimes.spark.driver.reading import LIMITED, WITHHELD
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT, Forward, Outlet
from headrace.runtimes.spark.worker.controlling import Home
from headrace.runtimes.spark.worker.packing import Route
from headrace.runtimes.spark.worker.partitioner import StreamSpec, Target
from headrace.runtimes.spark.worker.promising import Hearer, Speech
from headrace.runtimes.spark.worker.running import QUERY, HostSpec
from headrace.runtimes.spark.worker.shards import shard_keys_for, shard_keys_for_any
from headrace.runtimes.spark.worker.source_column import SourceColumn
from headrace.runtimes.spark.worker.state_store import Layout, key_text
from headrace.schema import Schema
from headrace.time.ets import TimerPromise, periodic

_CALLER = 7
"""Stack frames up to the caller of `apply` or `outputs`, whom a warning names."""

Level = tuple[HostSpec, ...]
"""The hosts of one stateful operator of Spark."""


@dataclass(frozen=True)
class Placed:
    """A host of an earlier start, whose state is in the checkpoint: its keys as text, and its shards.

    `reduced`: its streams come as partial rows.
    """

    level: int
    keys: Mapping[str, tuple[str, ...]] | None
    shard_keys: tuple[int, ...]
    queries: tuple[str, ...]
    reduced: bool = False
    streams: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    reported: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def home(self) -> Home:
        """What queries that are added while the job runs find here."""
        read = frozenset(() if self.reduced else self.streams)
        reported = {kind: frozenset(names) for kind, names in self.reported.items()}
        return Home(self.shard_keys, self.keys, read, frozenset(self.tables), reported)


@dataclass(frozen=True)
class HomeOf:
    """The place of a query among homes, the same in the driver and in every shard."""

    inputs: Inputs
    shards: int

    def __call__(self, query: PipelineQuery, homes: tuple[Home, ...]) -> int | None:
        """The first home that takes the query; None if the job must be planned again."""
        plan = query.query.plan
        cut = _stages(plan, self.inputs) if self.shards > 1 else [Stage(plan, Partitioning({}))]
        if len(cut) > 1:
            return None
        choices = Part(query.name, cut[0]).ways()
        return next((i for i, home in enumerate(homes) if home.takes(query, choices)), None)


@dataclass(frozen=True)
class World:
    """What hosts need to know besides their queries.

    `slots` is the number of partitions of Spark, `shards` the maximum number of shards of a host. `recorded`:
    arrivals are recorded, and a micro-batch may hold rows of several instants. `tables` are rows by table,
    `takes` is how much of each stream a micro-batch reads. `witnesses` are streams that no plan reads, but
    whose arrivals may advance the heartbeats of those that are read. `placed` are the hosts of an earlier
    start: queries of the same name stay there. `movable`: the state may later move to another number of
    partitions, so `slots` may change. `polled`: by stream, for how many ticks its source may not have looked
    for new rows.
    """

    inputs: Inputs
    shards: int
    slots: int | None = None
    recorded: bool = False
    tables: Mapping[str, bytes] = field(default_factory=dict)
    witnesses: Collection[str] = ()
    takes: Mapping[str, str] = field(default_factory=dict)
    placed: tuple[Placed, ...] = ()
    movable: bool = False
    polled: Mapping[str, int] = field(default_factory=dict)

    def shard_keys(self, shards: int, taken: Collection[int]) -> tuple[int, ...]:
        """Keys of the shards of a new host."""
        if self.movable:
            return tuple(shard_keys_for_any(shards, taken))
        return tuple(shard_keys_for(shards, self.slots, taken))

    def as_read(self, stream: StreamSpec) -> StreamSpec:
        """A stream, with what is known about how its source is read."""
        name = stream.source.name
        return replace(
            stream, takes=self.takes.get(name, stream.takes), polled=self.polled.get(name, stream.polled)
        )

    def was_reduced(self, query: str) -> bool | None:
        """Whether a query read partial rows at an earlier start; None if there was none."""
        found = [each.reduced for each in self.placed if query in each.queries]
        return any(found) if found else None


@dataclass(frozen=True)
class Part:
    """A stage of a query; `below` is the source that stands for the stage below.

    `windows` are the nodes of the whole plan that may change.
    """

    query: str
    stage: Stage
    partials: Partials | None = None
    below: Source | None = None
    windows: tuple[Plan, ...] = ()

    @property
    def sources(self) -> list[Source]:
        """The streams it reads, without the stage below."""
        return [s for s in dict.fromkeys(sources_of(self.stage.plan)) if s != self.below]

    @property
    def inlet(self) -> str:
        """The name under which the stage below enters; no stream has such a name."""
        assert self.below is not None
        return f"{self.query}:{self.below.name}"

    def ways(self) -> Sequence[Keys | None]:
        """The ways to partition its streams and its inlet; None if it needs all rows in one shard."""
        first = self.stage.partitioning.keys
        if not first:
            return [None] if first is None else [{}]
        found = [dict(first), *islice(ways(self.stage.plan), MOST_WAYS)]
        if self.below is None:
            return found
        return [{self.inlet if n == self.below.name else n: key for n, key in e.items()} for e in found]


@dataclass
class Group:
    """The parts of queries that run in one host; `keys` None: in one shard.

    `before` are the keys of an earlier start, by which its state is divided.
    """

    keys: Keys | None
    parts: list[Part] = field(default_factory=list)
    reads: dict[str, tuple[Source, Partials | None]] = field(default_factory=dict)
    shard_keys: tuple[int, ...] = ()
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def reduced(self) -> bool:
        """Whether its streams come as partial rows."""
        return any(partials is not None for _, partials in self.reads.values())

    @property
    def layout(self) -> Layout:
        """How rows are divided among the shards."""
        keys = {name: key_text(key) for name, key in (self.keys or {}).items() if key}
        return Layout(len(self.shard_keys), {**self.before, **keys})

    def placed(self, level: int, outlet: Outlet) -> Placed:
        """This group, for the next start."""
        queries = tuple(part.query for part in self.parts)
        keys = None if self.keys is None else self.layout.keys
        plans = [part.stage.plan for part in self.parts]
        tables = {each.name for plan in plans for each in walk(plan) if isinstance(each, Table)}
        streams, names = tuple(self.reads), tuple(sorted(tables))
        reported = {
            kind: tuple(name for name in streams if outlet.reports(kind, name)) for kind in (LATE, REJECTED)
        }
        return Placed(level, keys, self.shard_keys, queries, self.reduced, streams, names, reported)

    def add(self, part: Part, keys: Keys | None) -> None:
        """Add a part that fits with these keys."""
        self.parts.append(part)
        self.reads |= _reads(part)
        if self.keys is not None and keys is not None:
            self.keys = {name: self.keys.get(name) or keys.get(name, ()) for name in {**self.keys, **keys}}

    def fits(self, part: Part, keys: Keys | None) -> bool:
        """Whether the part can run here: it reads the same rows, in the same shards."""
        alike = all(self.reads.get(name, read) == read for name, read in _reads(part).items())
        if not alike or self.keys is None or keys is None:
            return alike and self.keys is None and keys is None
        written = {name: key_text(key) for name, key in keys.items() if key}
        if any(self.before.get(name, key) != key for name, key in written.items()):
            return False
        return all(not key or not self.keys.get(name) or self.keys[name] == key for name, key in keys.items())


def _reads(part: Part) -> dict[str, tuple[Source, Partials | None]]:
    """By stream, what its rows are: as they came, or partial rows."""
    partial = part.partials
    return {
        s.name: (s, partial if partial is not None and partial.source == s else None) for s in part.sources
    }


def hosts(
    plan: Plan,
    inputs: Inputs,
    partitions: int,
    outlet: Outlet,
    recorded: bool = False,
    tables: Mapping[str, bytes] | None = None,
    witnesses: Collection[str] = (),
    takes: Mapping[str, str] | None = None,
) -> list[HostSpec]:
    """The hosts of one plan, from the lowest to the one that emits the results."""
    world = World(inputs, partitions, None, recorded, tables or {}, witnesses, takes or {})
    return [level[0] for level in levels({QUERY: plan}, world, outlet)]


@dataclass(frozen=True)
class Topology:
    """The hosts of queries by level, and where each is, for the next start.

    Hosts of an earlier start that no query needs any more are there too, to free their state.
    """

    levels: tuple[Level, ...]
    placed: tuple[Placed, ...]

    @property
    def hosts(self) -> list[HostSpec]:
        """The hosts that run queries, in the order of `placed`."""
        return [host for level in self.levels for host in level if host.queries]


def levels(plans: Mapping[str, Plan], world: World, outlet: Outlet) -> list[Level]:
    """The hosts of all queries, from the lowest level to the one that emits the results."""
    return list(topology(plans, world, outlet).levels)


def topology(plans: Mapping[str, Plan], world: World, outlet: Outlet) -> Topology:
    """The hosts of all queries, in groups that can be partitioned alike."""
    parts = [_parts(query, plan, world, outlet) for query, plan in plans.items()]
    read = {source.name for plan in plans.values() for source in sources_of(plan)}
    world = replace(world, witnesses={*world.witnesses, *read})
    made: list[list[tuple[Group, HostSpec]]] = []
    taken = [key for each in world.placed for key in each.shard_keys]
    for number in range(max(map(len, parts))):
        below = {query: host for _, host in (made[-1] if made else ()) for query in host.queries}
        placed = [each for each in world.placed if each.level == number]
        level = []
        for group in _grouped([each[number] for each in parts if len(each) > number], placed):
            if not group.shard_keys:
                group.shard_keys = _shard_keys(group, world, taken)
                taken += group.shard_keys
            level.append((group, _host(group, world, below)))
        made.append(level)
    places = tuple(group.placed(number, outlet) for number, level in enumerate(made) for group, _ in level)
    used = {key for each in places for key in each.shard_keys}
    freed = [each for each in world.placed if used.isdisjoint(each.shard_keys)]
    found = [
        (*level, *(_freed(each, world) for each in freed if each.level == number))
        for number, level in enumerate(_with_outlets(made, outlet))
    ]
    return Topology(tuple(found), places)


def _freed(placed: Placed, world: World) -> HostSpec:
    """A host without queries, which frees the state of its shards."""
    return HostSpec(uuid.uuid4().hex, {}, (), world.inputs, placed.shard_keys)


def targets(made: Sequence[Level]) -> dict[str, list[Target]]:
    """By stream, the hosts that its rows go to."""
    found: dict[str, list[Target]] = {}
    for level, route in _routes(made):
        for host in level:
            for stream in host.streams:
                to = replace(route, shard_keys=host.shard_keys)
                found.setdefault(stream.source.name, []).append(Target(stream, to))
    return found


def speech(made: Sequence[Level], inputs: Inputs, speaker: str, schema: Schema) -> Speech | None:
    """What the rows of a stream promise to the hosts; None if nothing."""
    promises = inputs.row_promises
    about = promises.heard_by(speaker)
    found = tuple(
        Hearer(
            stream.source.name,
            stream.read.schema,
            stream.number,
            replace(route, shard_keys=host.shard_keys),
            () if host.outlet.forwards else stream.keys,  # above, what all shards promise holds
            stream.source.name != speaker or stream.takes in (LIMITED, WITHHELD),
        )
        for level, route in _routes(made)
        for host in level
        for stream in host.streams
        if stream.source.name in about and not stream.witness
    )
    recorded = any(host.recorded for level in made for host in level)
    return (
        Speech(speaker, schema, promises, found, inputs.rules_of(speaker).guard, recorded) if found else None
    )


def clock_routes(made: Sequence[Level]) -> list[Route]:
    """The hosts that need the clock: all of the lowest level, and those above that read streams."""
    return [
        replace(route, shard_keys=host.shard_keys)
        for level, route in _routes(made)
        for host in level
        if level is made[0] or not host.queries or (host.streams and not host.recorded)
    ]


def end_routes(made: Sequence[Level]) -> list[Route]:
    """All hosts."""
    return [replace(route, shard_keys=h.shard_keys) for level, route in _routes(made) for h in level]


def _routes(made: Sequence[Level]) -> Iterator[tuple[Level, Route]]:
    """The levels, each with the shards through which it is reached."""
    for level in made:
        yield level, Route((), () if level is made[0] else made[0][0].shard_keys)


# --- stages and groups ------------------------------------------------------------------------------------


def _parts(query: str, plan: Plan, world: World, outlet: Outlet) -> list[Part]:
    """The stages of a query, each with the source that stands for the one below it."""
    plan, reduced = (plan, None) if world.recorded else _reduced(query, plan, world, outlet)
    cut = _stages(plan, world.inputs) if world.shards > 1 else [Stage(plan, Partitioning({}))]
    below = [None, *(stage.output for stage in cut)]
    windows = tuple(adaptable(plan))
    return [Part(query, stage, reduced, source, windows) for stage, source in zip(cut, below, strict=False)]


def _grouped(parts: list[Part], placed: Sequence[Placed] = ()) -> list[Group]:
    """Parts that can be partitioned alike, together: those with the fewest choices are placed first.

    Queries that were placed at an earlier start stay there.
    """
    groups = [group for each in placed if (group := _again(each, parts)).parts]
    known = {part.query for group in groups for part in group.parts}
    new = [(part, part.ways()) for part in parts if part.query not in known]
    for part, choices in sorted(new, key=lambda each: len(each[1])):
        _place(part, choices, groups)
    order = {part.query: i for i, part in enumerate(parts)}
    for group in groups:
        group.parts.sort(key=lambda part: order[part.query])
    return sorted(groups, key=lambda group: order[group.parts[0].query])


def _again(placed: Placed, parts: list[Part]) -> Group:
    """The group of an earlier start, with those of its queries that are still there."""
    before = {name: key for name, key in (placed.keys or {}).items() if key}
    group = Group(None if placed.keys is None else {}, shard_keys=placed.shard_keys, before=before)
    for part in (each for each in parts if each.query in placed.queries):
        same = [keys for keys in part.ways() if group.fits(part, keys)]
        if not same:
            raise _moved(part, placed)
        group.add(part, same[0])
    return group


def _moved(part: Part, placed: Placed) -> SparkError:
    """The error for a query whose rows would have to be in other shards than its state."""
    division = part.stage.partitioning
    read = [source.name for source in part.sources]
    was = _by({name: key for name, key in (placed.keys or {}).items() if name in read})
    now = str(division) if division.keys is None else _by(_texts(division.keys))
    return SparkError(
        "HR-SP33",
        f"the state of query {part.query} is partitioned in another way: it was {was}, and is {now} now",
        place=part.query,
        hint=f"undo the change, start the query empty with --reset {part.query}, or give it a new name",
    )


def _texts(keys: Mapping[str, Key]) -> dict[str, tuple[str, ...]]:
    return {name: key_text(key) for name, key in keys.items() if key}


def _by(keys: Mapping[str, tuple[str, ...]]) -> str:
    """How rows are divided among shards, for a message."""
    return "; ".join(f"{name} by {', '.join(key)}" for name, key in keys.items() if key) or "in one shard"


def _place(part: Part, choices: Sequence[Keys | None], groups: list[Group]) -> None:
    """Add a part to the first group that one of its ways fits, or to a new one."""
    for group in groups:
        for keys in choices:
            if group.fits(part, keys):
                group.add(part, keys)
                return
    keys = choices[0]
    made = Group(None if keys is None else dict(keys))
    made.add(part, keys)
    groups.append(made)


def _stages(plan: Plan, inputs: Inputs) -> list[Stage]:
    """At most two parts, one after the other.

    If both read a stream, each decides alone which rows are late; under `admit` the two could disagree.
    """
    cut = stages(plan)
    if len(cut) > 2:
        cut = [cut[0], _merged(cut[1:])]
    read = [{source.name for source in sources_of(stage.plan)} for stage in cut]
    both = set.intersection(*read) if len(cut) > 1 else set()
    if any(inputs.rules_of(name).enforce == "admit" for name in both):
        reason = f"two stages could disagree on which late rows of {min(both)} to admit"
        return [Stage(plan, Partitioning(None, reason))]
    return cut


def _merged(cut: list[Stage]) -> Stage:
    """Several parts as one again."""
    plan, stand_ins = cut[-1].plan, cut[-1].stand_ins
    for stage in reversed(cut[:-1]):
        assert stage.output is not None
        plan = exchange(plan, stage.output, stage.plan)
        stand_ins = ((stage.plan, stage.output), *stand_ins)
    return Stage(plan, partition(plan), stand_ins=stand_ins)


def _shard_keys(group: Group, world: World, taken: Collection[int]) -> tuple[int, ...]:
    """One key per shard; queries that cannot be partitioned get one shard and a warning."""
    if group.keys is None:
        for part in group.parts:
            division = part.stage.partitioning
            how = f": {division.hint}" if division.hint else ""
            name = "" if part.query == QUERY else f"{part.query}: "
            warnings.warn(
                HeadraceWarning(f"{name}one shard, on one core: {division.reason}{how}"), stacklevel=_CALLER
            )
        return world.shard_keys(1, taken)
    return world.shard_keys(world.shards, taken)


# --- hosts ------------------------------------------------------------------------------------------------


def _host(group: Group, world: World, below: Mapping[str, HostSpec]) -> HostSpec:
    """The host of a group; what a stage below emits enters through one inlet per shard of it."""
    plans: dict[str, Plan] = {}
    windows: dict[str, tuple[Plan | None, ...]] = {}
    inlets: list[Inlet] = []
    for part in group.parts:
        stage = part.stage
        plan = stage.plan
        if part.below is not None:
            own = _inlets(part, part.below, len(below[part.query].shard_keys))
            entry = Union(tuple(own))
            plan = exchange(plan, part.below, entry)
            stage = replace(stage, stand_ins=((entry, part.below), *stage.stand_ins))
            inlets += own
        here = {stage.written(node): node for node in adaptable(plan)}
        windows[part.query] = tuple(map(here.get, part.windows))
        plans[part.query] = plan if stage.output is None else Union((plan,))
    streams = [
        _stream(i, source, (group.keys or {}).get(name, ()), world, partials)
        for i, (name, (source, partials)) in enumerate(group.reads.items())
    ]
    inputs = world.inputs
    if any(part.stage.output is not None for part in group.parts):
        inputs = _reporting(inputs, streams)
    streams += _witnesses(streams, world)
    return HostSpec(
        uuid.uuid4().hex,
        plans,
        tuple(world.as_read(each) for each in streams),
        inputs,
        group.shard_keys,
        tuple(inlet.name for inlet in inlets),
        layout=group.layout,
        tables=_tables(plans.values(), world.tables),
        recorded=world.recorded,
        windows=windows,
    )


def _inlets(part: Part, below: Source, shards: int) -> list[Inlet]:
    """The inlets of a stage, one for each shard of the stage below."""
    relation = below.is_relation
    return [Inlet(f"{part.inlet}/{i}", below.schema, relation=relation) for i in range(shards)]


def _with_outlets(made: list[list[tuple[Group, HostSpec]]], outlet: Outlet) -> list[Level]:
    """The hosts with what they emit. A stream that several hosts read is reported by the first of them."""
    reported: set[str] = set()
    found: list[Level] = []
    for number, level in enumerate(made):
        above = made[number + 1] if number + 1 < len(made) else []
        hosts = []
        for _, host in level:
            own = frozenset(s.source.name for s in host.streams if not s.witness) - reported
            reported |= own
            leaves = replace(
                outlet,
                reported_streams=own,
                forwards=_forwards(host, above),
                through=above[0][1].shard_keys[0] if above else None,
            )
            hosts.append(replace(host, outlet=leaves))
        found.append(tuple(hosts))
    return found


def _forwards(host: HostSpec, above: list[tuple[Group, HostSpec]]) -> dict[str, Forward]:
    """How the queries of a host continue above: partitioned by the keys of their next stage."""
    found = {}
    for group, upper in above:
        for part in group.parts:
            if part.query in host.queries and part.below is not None:
                first = len(upper.streams) + upper.inlets.index(f"{part.inlet}/0")
                found[part.query] = Forward(upper.shard_keys, (group.keys or {}).get(part.inlet, ()), first)
    return found


def _stream(number: int, source: Source, key: Key, world: World, partials: Partials | None) -> StreamSpec:
    """How one stream of a host is sent to its shards."""
    inputs, name = world.inputs, source.name
    return StreamSpec(
        number,
        source,
        key,
        inputs.learns(name),
        inputs.counts_rows(name),
        inputs.rules_of(name).guard,
        world.recorded,
        partials,
        _lag(inputs, name),
        sources=_sources(inputs, name),
    )


def _sources(inputs: Inputs, stream: str) -> SourceColumn | None:
    """The column that names the sources of a stream, if its bounds hold for groups of them."""
    promise = inputs.by_source(stream)
    if promise is None:
        return None
    judged = inputs.rules_of(stream).enforce == "strict"
    return SourceColumn(promise.by.column, promise.by.cells, judged, promise.by.numbered)


def _witnesses(streams: Sequence[StreamSpec], world: World) -> list[StreamSpec]:
    """The streams that a host does not read, but whose times matter because of bounds between streams."""
    heard = world.inputs.heard_by([stream.source.name for stream in streams])
    sources = (Source(name, pa.schema([])) for name in sorted(heard.intersection(world.witnesses)))
    made = (_stream(i, each, (), world, None) for i, each in enumerate(sources, len(streams)))
    return [replace(stream, witness=True) for stream in made]


def _tables(plans: Collection[Plan], tables: Mapping[str, bytes]) -> dict[str, bytes]:
    """The tables that plans read; each shard has all their rows."""
    read = {each.name for plan in plans for each in walk(plan) if isinstance(each, Table)}
    return {name: rows for name, rows in tables.items() if name in read}


def _reduced(query: str, plan: Plan, world: World, outlet: Outlet) -> tuple[Plan, Partials | None]:
    """The plan over partial rows, if they can be computed before it is known which rows are late.

    Under `admit` a row is late for windows that are already answered, and all rows of a pane belong to the
    same windows. Under `strict` it is late by its own time, so the partitioner must know the heartbeat,
    which only a clock gives. Late rows themselves are lost in the sum, so only their number can be reported:
    the number of rows that pass the filters below the aggregate. State in a checkpoint decides for both.
    Where rows are punctuations or heartbeats, only the host knows what they have promised so far.
    """
    found, before = in_two_steps(plan), world.was_reduced(query)
    if found is None or before is False:
        return plan, None
    name = found[0].source.name
    enforce, lag = world.inputs.rules_of(name).enforce, _lag(world.inputs, name)
    judged = enforce == "admit" or (enforce == "strict" and lag is not None)
    judged = judged and not world.inputs.row_promises.concern(name)
    reported = any(outlet.reports(kind, name) for kind in outlet.kinds - {RESULT})
    if judged and not reported:
        return found[1], found[0]
    if before:
        what = "late and rejected rows are written" if reported else "its bounds need single rows"
        raise SparkError(
            "HR-SP33",
            f"the state of query {query} was built from partial rows, but now {what}",
            place=query,
            hint=f"undo the change, start the query empty with --reset {query}, or give it a new name",
        )
    return plan, None


def _lag(inputs: Inputs, stream: str) -> int | None:
    """How far behind the clock rows of a stream may be, if the timer decides that; else None."""
    promise = inputs.promise_of(stream)
    return promise.offset if isinstance(promise, TimerPromise) else None


def _reporting(inputs: Inputs, streams: Sequence[StreamSpec]) -> Inputs:
    """Inputs of a lower host: it reports how far results are complete, even if nothing waits for that here.

    The heartbeat is read at a union with one input, which is added above the plan.
    """
    policies = {stream.source.name: periodic(1) for stream in streams}
    return replace(inputs, policies={**inputs.policies, **policies})
