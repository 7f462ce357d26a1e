"""Commands that Spark cannot follow: refused before they are written, and again by the run, which goes on.

A command may be good for a pipeline and still ask for what only the embedded runtime has: a source, a sink,
or a bound by a clock that counts ticks. The next start would fail on it.
"""

from __future__ import annotations

from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA
from headrace.control import AddQuery, Command, Pause, Resume, SetBounds
from headrace.errors import SparkError
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.runtimes.spark.driver.preview import home_of
from headrace.runtimes.spark.driver.sinks import Sinks
from headrace.runtimes.spark.driver.sources import check_stream


def check_command(command: Command, after: Pipeline) -> None:
    """Raise an error if Spark cannot run what a command makes of a pipeline; `after` has the change."""
    check_kind(command)
    if isinstance(command, SetBounds):
        check_stream(after, after.streams[command.stream])
    if isinstance(command, AddQuery):
        query = after.queries[-1]
        for name in query.streams:
            check_stream(after, after.streams[name])
        _check_sinks(query, after)


def check_kind(command: Command) -> None:
    """Raise an error for a command that only the embedded runtime has."""
    if isinstance(command, Pause | Resume):
        raise SparkError(
            "HR-SP38",
            "queries can be paused in the embedded runtime only",
            place=command.query,
            hint="remove the query, and add it again later; what it has written stays",
        )


def _check_sinks(query: PipelineQuery, pipeline: Pipeline) -> None:
    """Raise an error for outputs that Spark cannot write."""
    home, spec, place = home_of(pipeline), query.spec, f"queries.{query.name}"
    assert home is not None  # with a control log there is a checkpoint
    made = Sinks(pipeline, home, True, [])
    made.answers(spec.sink, query.query.schema, f"{place}.sink")
    for kind, schema in (("late", LATE_SCHEMA), ("rejected", REJECTED_SCHEMA)):
        aside = getattr(spec, kind)
        if aside is not None:
            made.of(aside, schema, f"{place}.{kind}")
