"""Writes a command for a pipeline: checked against what is in force, then appended to the log."""

from __future__ import annotations

from collections.abc import Callable

from headrace.control.check import check
from headrace.control.commands import Command, Reload, RemoveQuery
from headrace.control.in_force import in_force, replaced
from headrace.control.log import Entry, log_of
from headrace.control.reloading import with_rows
from headrace.errors import ControlError
from headrace.pipeline.pipeline import Pipeline


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
    if isinstance(command, Reload):
        command = with_rows(command, pipeline, log)
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
