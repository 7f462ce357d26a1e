"""Writes a command for a pipeline: checked against what is in force, then appended to the log."""

from __future__ import annotations

from collections.abc import Callable

from headrace.control.check import check
from headrace.control.commands import Command, RemoveQuery
from headrace.control.in_force import in_force, replaced
from headrace.control.log import DIRECTORY, Entry, Log
from headrace.errors import ControlError
from headrace.pipeline.pipeline import Pipeline


def log_of(pipeline: Pipeline) -> Log:
    """The control log of a pipeline, which is in its checkpoint directory."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        raise ControlError(
            "HR-L001",
            "this pipeline has no checkpoint, so it has no control log",
            place=str(pipeline.file or pipeline.name),
            hint='set checkpoint = "state" under [pipeline]',
        )
    return Log(pipeline.path(checkpoint) / DIRECTORY)


def submit(
    pipeline: Pipeline, command: Command, also: Callable[[Command, Pipeline], None] | None = None
) -> Entry:
    """Check a command and write it; `pipeline` is what the file says.

    `also` is one more check, with the pipeline after the command. Whether or not the pipeline is running, the
    command is applied once: between two steps of the run, or of the next one.
    """
    log = log_of(pipeline)
    after = _checked(command, pipeline, log.read())
    if also is not None:
        also(command, after)
    return log.append(command, replaced(pipeline, command))


def _checked(command: Command, pipeline: Pipeline, entries: list[Entry]) -> Pipeline:
    """The pipeline after a command; an error if it cannot be applied."""
    try:
        return check(command, in_force(pipeline, entries))
    except ControlError as error:
        if error.code != "HR-L011" or not isinstance(command, RemoveQuery):
            raise
    # What no longer fits the file can still be removed.
    return in_force(pipeline, [*entries, Entry(len(entries) + 1, command)])
