"""Sends a command to a pipeline, whether or not it is running: the command line and the page use this."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass

from headrace.control import AddQuery, Command, Entry, Pause, RemoveQuery, Resume, Stop, submit
from headrace.disk import is_held
from headrace.errors import ControlError
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded.factory import PipelineFactory
from headrace.runtimes.status import EMBEDDED_FILE
from headrace.runtimes.status_file import SPARK_JOB
from headrace.time.clock import SystemClock


@dataclass(frozen=True)
class Sent:
    """A command in the log. `running` is None if it cannot be seen from here whether a run reads it."""

    entry: Entry
    running: bool | None

    def __str__(self) -> str:
        command = self.entry.command
        return f"{_did(command)} as command {self.entry.number}; {_when(command, self.running)}"


def send(pipeline: Pipeline, command: Command) -> Sent:
    """Check a command and write it to the log; `pipeline` is what the file says."""
    running = is_running(pipeline)
    if isinstance(command, Stop) and running is False:
        file = pipeline.file or pipeline.name
        raise ControlError(
            "HR-L012", "the pipeline is not running", place=str(file), hint=f"to run it: headrace run {file}"
        )
    entry = submit(pipeline, command, _sinks_exist if pipeline.runtime == "embedded" else _fits)
    return Sent(entry, running)


def _sinks_exist(command: Command, after: Pipeline) -> None:
    """Refuse a query with outputs that the embedded runtime does not have."""
    if isinstance(command, AddQuery):
        PipelineFactory(after, SystemClock(), 0).query_outputs(after.queries[-1])


def _fits(command: Command, after: Pipeline) -> None:
    """Refuse what Spark does not have, and a query that does not fit into the budget of the job.

    An embedded run looks at the budget itself. Without PySpark here, the run looks at the rest.
    """
    from headrace.runtimes.spark.driver.admission import check_added

    if importlib.util.find_spec("pyspark") is not None:
        from headrace.runtimes.spark.driver.accepting import check_command

        check_command(command, after)
    checkpoint = after.spec.pipeline.checkpoint
    if isinstance(command, AddQuery) and checkpoint is not None and after.spec.memory.budget is not None:
        job = (after.path(checkpoint) / SPARK_JOB).parent
        check_added(job, command.name, after.queries[-1].query)


def is_running(pipeline: Pipeline) -> bool | None:
    """Whether a run uses the checkpoint; None if that cannot be seen from here."""
    if pipeline.runtime != "embedded" or pipeline.spec.pipeline.checkpoint is None:
        return None
    path = pipeline.path(pipeline.spec.pipeline.checkpoint)
    return path.is_dir() and is_held(path)


def _did(command: Command) -> str:
    """What was done, as the beginning of a sentence."""
    if isinstance(command, AddQuery):
        return f"added query {command.name!r}"
    if isinstance(command, RemoveQuery):
        return f"removed query {command.name!r}"
    if isinstance(command, Pause | Resume):
        return f"{'paused' if isinstance(command, Pause) else 'resumed'} query {command.query!r}"
    return "written"


def _when(command: Command, running: bool | None) -> str:
    """When a command takes effect."""
    if isinstance(command, AddQuery | RemoveQuery):
        does = "it starts" if isinstance(command, AddQuery) else "it ends"
    else:
        does = "it takes effect"
    if running is None:
        return f"{does} with the next micro-batch, or with the next run"
    return (
        f"{does} with the next step" if running else f"{does} with the next run: the pipeline is not running"
    )


def applied(pipeline: Pipeline) -> int | None:
    """The number of the last command that a run has read, from its status; None if that is not known."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if pipeline.runtime != "embedded" or checkpoint is None:
        return None
    try:
        status = json.loads((pipeline.path(checkpoint) / EMBEDDED_FILE).read_text())
    except (OSError, ValueError):
        return 0
    return int(status.get("commands", 0))


def state_of(entry: Entry, applied: int | None) -> str:
    """What became of a command."""
    if entry.refused is not None:
        return f"refused: {entry.refused}"
    if applied is None:
        return "written"
    return "applied" if entry.number <= applied else "not applied yet"
