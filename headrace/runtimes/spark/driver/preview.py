"""What the next start of a pipeline on Spark would do with the state of its checkpoint, without a session.

`headrace check` says it. The job compares itself with its record again when it starts.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.control import in_force, log_of
from headrace.engine import Adopted
from headrace.errors import HeadraceWarning
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded.evolving import (
    check_clock,
    check_names,
    check_streams,
    check_tables,
    essence,
    table_digests,
)
from headrace.runtimes.spark.driver.continuing import Start, added_again, adopted, outlet_of, with_added
from headrace.runtimes.spark.driver.record import NAME, Record
from headrace.runtimes.spark.driver.sources import bounded, replays
from headrace.runtimes.spark.driver.topology import World, topology
from headrace.runtimes.spark.driver.writing import JobQuery
from headrace.runtimes.spark.worker.answers import LATE, REJECTED, RESULT

JOB: Final = "job"
"""The directory of the job's checkpoint, below that of the pipeline on Spark."""


def home_of(pipeline: Pipeline) -> Path | None:
    """The directory of a pipeline's checkpoint on Spark; None if it has none."""
    written = pipeline.spec.pipeline.checkpoint
    return None if written is None else pipeline.path(written).absolute() / "spark"


def definition_of(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline as plain data, for the record of a start."""
    clock = "arrival" if replays(pipeline) else "system"
    return essence(pipeline) | {"clock": clock, "table_files": table_digests(pipeline)}


def check_definition(
    pipeline: Pipeline,
    now: Mapping[str, Any],
    record: Record | None,
    place: str,
    reset: Collection[str],
    reload: Collection[str],
) -> None:
    """Raise an error if a pipeline cannot go on with the streams, tables and the clock of a record."""
    check_names(pipeline, reset, reload)
    if record is None or not record.definition:
        return
    before = record.definition
    check_tables(before["table_files"], now["table_files"], pipeline, reload)
    check_clock(before["clock"], now["clock"], place)
    check_streams(before["streams"], record.streams, pipeline, place)


def preview(
    pipeline: Pipeline, *, reset: Collection[str] = (), reload: Collection[str] = ()
) -> Adopted | None:
    """What the next start would do with the state of each query; None if it would be the first one.

    It changes nothing. If the next start would stop with an error, this is the error.
    """
    home = home_of(pipeline)
    file = None if home is None else home / JOB / NAME
    if file is None or not file.exists():
        return None
    noted = record = Record.of(file.read_text(), str(file))
    pipeline = in_force(pipeline, log_of(pipeline).read())
    check_definition(pipeline, definition_of(pipeline), record, str(file.parent), reset, reload)
    inputs = pipeline.inputs()
    if not (bounded(pipeline) or replays(pipeline)):
        record = with_added(record, pipeline, inputs)
    queries = {
        each.name: JobQuery(each.query, dict.fromkeys(_outputs(each.spec), _unused))
        for each in pipeline.queries
    }
    start = Start.of(queries, record, frozenset(reset))
    before, empty_now = start.before, added_again(noted, record, queries).union(reset)
    world = World(inputs, before.shards, recorded=replays(pipeline), placed=before.placed, movable=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)  # the start itself warns
        made = topology(start.plans, world, outlet_of(queries))
    hosts = [
        replace(
            host,
            since={name: start.since[name] for name in host.queries},
            reset=empty_now.intersection(host.queries),
            ticks_per_second=pipeline.ticks_per_second,
            execution=pipeline.execution,
        )
        for host in made.hosts
    ]
    return adopted(hosts, before, frozenset(reset))


def _outputs(spec: Any) -> list[str]:
    """The kinds of rows that a query writes."""
    wanted = {RESULT: spec.sink, LATE: spec.late, REJECTED: spec.rejected}
    return [kind for kind, sink in wanted.items() if sink is not None]


def _unused(rows: object, batch: int) -> None:
    """Stands for a sink: a preview writes nothing."""
