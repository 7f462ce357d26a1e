"""What a start of a job continues: which queries ran before and since when, and what becomes of their state.

Nothing here needs a Spark session: a start can be compared with the last one before anything runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.engine import Adopted, Engine, Snapshot
from headrace.engine.inputs import Inputs
from headrace.errors import SparkError
from headrace.pipeline import Pipeline
from headrace.pipeline.sharing import shared_plans
from headrace.plan.nodes.core import Plan
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.topology import HomeOf
from headrace.runtimes.spark.driver.writing import JobQuery
from headrace.runtimes.spark.versions import first_with
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT, Outlet
from headrace.runtimes.spark.worker.running import HostSpec
from headrace.sql import Catalog, Query, StreamDef, TableDef
from headrace.sql import query as make_query

Together = Mapping[str, Mapping[str, str]]
"""By generation, the queries that started together, and their text."""


@dataclass(frozen=True)
class Start:
    """A start: the record before it, its number, and the generation and the plan of each query."""

    before: Record
    generation: int
    since: Mapping[str, int]
    together: Together
    plans: Mapping[str, Plan]

    @staticmethod
    def of(queries: Mapping[str, JobQuery], record: Record | None, reset: frozenset[str]) -> Start:
        """The start that comes after a record; queries in `reset` begin as if they had never run."""
        before = (record or Record()).without(reset)
        first = 0 if record is None else record.generation + 1
        since, generation = _generations(queries, before, first)
        together = _together(queries, since, before)
        plans = _plans({name: each.query for name, each in queries.items()}, since, together)
        return Start(before, generation, since, together, plans)


def with_added(record: Record, pipeline: Pipeline, inputs: Inputs) -> Record:
    """The record with the queries that were added while the job ran, where shards have put them.

    A query that was removed and added again under its name is not there: shards leave it to the next start.
    """
    home_of = HomeOf(inputs, record.shards)  # as in the shards, also if all hosts have a single one
    homes = tuple(each.home for each in record.placed if each.level == 0)
    added = [query for query in pipeline.queries if query.since > record.position]
    found: dict[str, tuple[int, ...]] = {}
    for query in added:
        home = None if query.name in record.queries else home_of(query, homes)
        found |= {} if home is None else {query.name: homes[home].shard_keys}
    again = record.queries.intersection(query.name for query in added if record.follows)
    return record.without(again).with_added(found)


def added_again(before: Record, now: Record, queries: Collection[str]) -> frozenset[str]:
    """The queries that were removed since a start and added again: the state of their names is not theirs.

    `before` is the record of that start, and `now` what commands have made of it.
    """
    return (before.queries - now.queries).intersection(queries)


def _generations(queries: Collection[str], before: Record, first: int) -> tuple[dict[str, int], int]:
    """The generation of each query, and that of this start; `first` is the first that is free.

    A query that was added while the job ran has state of its own, so it is alone in its generation.
    """
    added = [name for name in queries if name in before.queries and name not in before.since]
    known = {**before.since, **{name: first + i for i, name in enumerate(added)}}
    generation = first + len(added)
    return {n: known[n] if n in before.queries else generation for n in queries}, generation


def _together(queries: Mapping[str, JobQuery], since: Mapping[str, int], before: Record) -> Together:
    """The queries that started together, now and before, in the generations that still run."""
    found: dict[str, Mapping[str, str]] = {}
    for generation in sorted(set(since.values())):
        new = {name: each.query.text for name, each in queries.items() if since[name] == generation}
        found[str(generation)] = before.together.get(str(generation), new)
    return found


def _plans(queries: Mapping[str, Query], since: Mapping[str, int], together: Together) -> dict[str, Plan]:
    """The plans of the queries: those that started together share windows, joins and aggregates."""
    defined: dict[str, StreamDef | TableDef] = {}
    for query in queries.values():
        defined |= {each.name: each for each in query.streams} | {each.name: each for each in query.tables}
    catalog = Catalog(defined)
    plans = {name: query.plan for name, query in queries.items()}
    for generation, texts in together.items():
        running = {name: query for name, query in queries.items() if since[name] == int(generation)}
        plans |= shared_plans(running, texts, lambda name, text: make_query(text, catalog, name=name))
    return plans


def empty(host: HostSpec) -> Engine:
    """The engine of a host, without any rows."""
    return replace(host, budget=None).build()


def adopted(hosts: Sequence[HostSpec], before: Record, reset: frozenset[str]) -> Adopted:
    """What becomes of the state of each query; an error if state cannot serve a changed query (HR-G022)."""
    old = dict(zip((each.shard_keys for each in before.placed), before.snapshots, strict=True))
    kept, begun = list[str](), list[str]()
    for host in hosts:
        known = old.get(host.shard_keys)
        if known is None:
            begun += host.queries
            continue
        found = empty(host).adopt(Snapshot.decode_all(known), reset=host.reset)
        new = (*found.begun, *found.reset)
        kept += found.kept
        kept += (name for name in new if name in before.queries)  # added while the job ran
        begun += (name for name in new if name not in before.queries)
    freed = before.queries - {name for host in hosts for name in host.queries}
    return Adopted(
        tuple(kept), tuple(n for n in begun if n not in reset), tuple(sorted(freed)), tuple(sorted(reset))
    )


def check_sources(
    before: tuple[str, ...], now: tuple[str, ...], checkpoint: str, can_have_names: bool
) -> None:
    """Raise an error if Spark would not find the positions of the sources, which have no names."""
    if before and before != now:
        more, fewer = (", ".join(sorted({*a} - {*b})) for a, b in ((now, before), (before, now)))
        changes = [f"{verb} {names}" for verb, names in (("adds", more), ("no longer reads", fewer)) if names]
        raise SparkError(
            "HR-SP35",
            f"the job {' and '.join(changes)}, and its sources have no names: Spark cannot continue them",
            place=checkpoint,
            hint=f"undo the change, or use a new checkpoint; {_NAMING[can_have_names]}",
        )


_NAMING: Final = {
    True: "a pipeline file has names for its sources, and in Python spark.readStream.name(…) gives them, "
    "from the first start on",
    False: f"sources can have names with Spark {first_with('named_sources')} or later",
}


def outlet_of(queries: Mapping[str, JobQuery]) -> Outlet:
    """How rows leave: late and rejected rows in full only of streams for which a query has such a sink."""
    kinds = {kind for each in queries.values() for kind in each.sinks}
    aside = (each for each in queries.values() if each.sinks.keys() & {LATE, REJECTED})
    whole = frozenset(stream for each in aside for stream in each.streams)
    return Outlet(kinds=frozenset((RESULT, *kinds)), packed=True, whole=whole)
