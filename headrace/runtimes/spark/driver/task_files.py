"""Which results the tasks that read rows write themselves (`headrace.runtimes.spark.worker.task_files`)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from headrace.engine.inputs import Inputs
from headrace.plan.analysis.native import is_row_by_row
from headrace.plan.nodes.core import Plan, Source, TimeKind
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.writing import Files, JobQuery
from headrace.runtimes.spark.worker.answers import RESULT
from headrace.runtimes.spark.worker.task_files import TaskFiles


def task_files(
    queries: Mapping[str, JobQuery], inputs: Inputs, options: SparkOptions, spark: SparkSession
) -> TaskFiles | None:
    """The files that tasks write, if the only query of a job allows it.

    It selects and projects the rows of one stream, its results need not be in order, and its sink is a folder
    that Arrow can write. Under `admit` no row is too late for such a query; a punctuation could make one so.
    """
    if len(queries) != 1 or options.arrival is not None:
        return None
    ((name, of),) = queries.items()
    sink, stream = of.sinks.get(RESULT), _only_stream(of.query.plan)
    if stream is None or of.query.ordered or of.time_column is not None or set(of.sinks) != {RESULT}:
        return None
    if not _never_late(stream, inputs) or not isinstance(sink, Files):
        return None
    folder = sink.by_arrow(spark, of.schema)
    if folder is None:
        return None
    return TaskFiles(name, stream.name, of.query.plan, str(folder.path), folder.codec)


def _only_stream(plan: Plan) -> Source | None:
    """The stream below filters and projections; None for any other plan."""
    while is_row_by_row(plan):
        (plan,) = plan.inputs
    return plan if isinstance(plan, Source) else None


def _never_late(stream: Source, inputs: Inputs) -> bool:
    """Whether no row of a stream is too late for results that leave at once."""
    name = stream.name
    by_time = stream.time is TimeKind.EXTERNAL and inputs.rules_of(name).enforce == "admit"
    return by_time and not inputs.row_promises.concern(name) and inputs.by_source(name) is None
