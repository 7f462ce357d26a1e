"""A query as hosts: one if one key divides it, more in a row where rows must meet by different keys."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceWarning
from headrace.expressions import Expression
from headrace.plan.nodes import Inlet, Plan, Source, Table, Union
from headrace.plan.partials import Partials, in_two_steps
from headrace.plan.partitioning import Partitioning, partition
from headrace.plan.stages import Stage, stages
from headrace.plan.trees import exchange, sources_of, walk
from headrace.runtimes.spark.answers import Forward, Outlet
from headrace.runtimes.spark.fan import StreamSpec
from headrace.runtimes.spark.notes import RESULT
from headrace.runtimes.spark.running import HostSpec
from headrace.runtimes.spark.shards import names_for
from headrace.time.ets import TimerPromise, periodic


def hosts(
    plan: Plan,
    inputs: Inputs,
    partitions: int,
    outlet: Outlet,
    several: bool = False,
    tables: Mapping[str, bytes] | None = None,
    witnesses: Collection[str] = (),
    takes: Mapping[str, str] | None = None,
) -> list[HostSpec]:
    """The hosts of a plan, from the lowest to the one whose answers are the query's.

    `several`: instants are recorded, and a micro-batch may hold rows of several. `tables` are their rows by
    name, `takes` how much of each stream a micro-batch takes. `witnesses` are streams that the plan does not
    read, and whose arrivals may prove something of those that it reads.
    """
    there = {*witnesses, *(source.name for source in sources_of(plan))}
    plan, reduced = (plan, None) if several else _reduced(plan, inputs, outlet)
    cut = _stages(plan, inputs) if partitions > 1 else [Stage(plan, Partitioning({}))]
    names = [_names(stage, partitions) for stage in cut]
    made: list[HostSpec] = []
    for i, stage in enumerate(cut):
        below = (cut[i - 1].output, len(names[i - 1])) if i else (None, 0)
        host = _host(stage, inputs, names[i], below[0], below[1], several, reduced)
        streams = _taking(host.streams + _witnesses(host, inputs, several, there), takes or {})
        host = replace(host, recorded=several, streams=streams)
        made.append(host if i == len(cut) - 1 else _as_lower(host))
    lower = [_forward(stage, cut[i + 1], made[i + 1], outlet) for i, stage in enumerate(cut[:-1])]
    outlets = [*lower, outlet]
    told: set[str] = set()
    for i, host in enumerate(made):
        own = frozenset(stream.source.name for stream in host.streams if not stream.witness) - told
        made[i] = replace(
            host, outlet=replace(outlets[i], tells_of=own), tables=_tables(host.plan, tables or {})
        )
        told |= own
    return made


def _taking(streams: tuple[StreamSpec, ...], takes: Mapping[str, str]) -> tuple[StreamSpec, ...]:
    return tuple(replace(s, takes=takes.get(s.source.name, s.takes)) for s in streams)


def _tables(plan: Plan, tables: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those that a part reads: each shard has them whole."""
    read = {each.name for each in walk(plan) if isinstance(each, Table)}
    return {name: rows for name, rows in tables.items() if name in read}


def _stages(plan: Plan, inputs: Inputs) -> list[Stage]:
    """At most two parts, one after the other.

    Where a stream is read by both, each admits its rows alone; under `admit` that could come to two things.
    """
    cut = stages(plan)
    if len(cut) > 2:
        cut = [cut[0], _together(cut[1:])]
    read = [{source.name for source in sources_of(stage.plan)} for stage in cut]
    both = set.intersection(*read) if len(cut) > 1 else set()
    if any(inputs.rules_of(name).enforce == "admit" for name in both):
        reason = f"late rows of {min(both)} are admitted where they still count, which two parts cannot tell"
        return [Stage(plan, Partitioning(None, reason))]
    return cut


def _together(cut: list[Stage]) -> Stage:
    """Parts that were cut, whole again, divided as the last of them: not at all."""
    plan = cut[-1].plan
    for stage in reversed(cut[:-1]):
        assert stage.output is not None
        plan = exchange(plan, stage.output, stage.plan)
    whole = partition(plan)
    return Stage(plan, whole)


def _names(stage: Stage, partitions: int) -> tuple[int, ...]:
    if stage.partitioning.keys is None:
        reason, hint = stage.partitioning.reason, stage.partitioning.hint
        how = f": {hint}" if hint else ""
        warnings.warn(HeadraceWarning(f"one shard, so one core: {reason}{how}"), stacklevel=5)
        return tuple(names_for(1))
    return tuple(names_for(partitions))


def _host(
    stage: Stage,
    inputs: Inputs,
    names: tuple[int, ...],
    below: Source | None,
    shards: int,
    several: bool,
    reduced: Partials | None,
) -> HostSpec:
    plan, inlets = stage.plan, list[Inlet]()
    if below is not None:
        inlets = [Inlet(f"{below.name}/{i}", below.schema, relation=below.is_relation) for i in range(shards)]
        plan = exchange(plan, below, Union(tuple(inlets)))
    keys: Mapping[str, tuple[Expression, ...]] = stage.partitioning.keys or {}
    own = dict.fromkeys(s for s in sources_of(stage.plan) if s != below)
    streams = [_stream(i, s, keys.get(s.name, ()), inputs, several, reduced) for i, s in enumerate(own)]
    return HostSpec(
        uuid.uuid4().hex, plan, tuple(streams), inputs, names, tuple(inlet.name for inlet in inlets)
    )


def _stream(
    number: int,
    source: Source,
    keys: tuple[Expression, ...],
    inputs: Inputs,
    several: bool,
    reduced: Partials | None,
) -> StreamSpec:
    name = source.name
    return StreamSpec(
        number,
        source,
        keys,
        inputs.learns(name),
        inputs.counts_rows(name),
        inputs.rules_of(name).guard,
        several,
        reduced if reduced is not None and reduced.source == source else None,
        _lag(inputs, name),
    )


def _witnesses(
    host: HostSpec, inputs: Inputs, several: bool, there: Collection[str]
) -> tuple[StreamSpec, ...]:
    """The streams that a host hears of and does not read, for what bounds between streams let them prove."""
    heard = inputs.heard_by([stream.source.name for stream in host.streams])
    sources = (Source(name, pa.schema([])) for name in sorted(heard.intersection(there)))
    made = (_stream(i, each, (), inputs, several, None) for i, each in enumerate(sources, len(host.streams)))
    return tuple(replace(stream, witness=True) for stream in made)


def _reduced(plan: Plan, inputs: Inputs, outlet: Outlet) -> tuple[Plan, Partials | None]:
    """The plan over partial rows, where they can be made before anybody knows which rows are late.

    Under `admit` a row is late for the windows that are answered, and rows of a pane are in the same windows.
    Under `strict` it is late by its own time: then the fan must know the heartbeat, which only a clock gives.
    Late rows themselves are lost in the sum, so only their number may be wanted; it is of rows that pass the
    selections below the aggregate.
    """
    found = in_two_steps(plan) if outlet.kinds == {RESULT} else None
    if found is None:
        return plan, None
    name = found[0].source.name
    enforce = inputs.rules_of(name).enforce
    if enforce == "admit" or (enforce == "strict" and _lag(inputs, name) is not None):
        return found[1], found[0]
    return plan, None


def _lag(inputs: Inputs, stream: str) -> int | None:
    promise = inputs.promise_of(stream)
    return promise.offset if isinstance(promise, TimerPromise) else None


def _as_lower(host: HostSpec) -> HostSpec:
    """A host that tells how far its answers are complete, whether anything waits for that here or not.

    A union of one above the plan is where its heartbeat is read.
    """
    policies = {stream.source.name: periodic(1) for stream in host.streams}
    inputs = replace(host.inputs, policies={**host.inputs.policies, **policies})
    return replace(host, plan=Union((host.plan,)), inputs=inputs)


def _forward(stage: Stage, above: Stage, host: HostSpec, last: Outlet) -> Forward:
    assert stage.output is not None
    keys = (above.partitioning.keys or {}).get(stage.output.name, ())
    return Forward(kinds=last.kinds, names=host.names, keys=keys, first=len(host.streams))
