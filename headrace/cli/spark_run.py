"""`headrace run` on Spark: our messages on the terminal; those of Java and of Spark's workers in a file."""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow as pa

from headrace.cli.outcome import FIRST, places
from headrace.cli.view import Show, apart
from headrace.dashboard.tails import reader_of
from headrace.errors import HeadraceWarning, PipelineError, SparkError
from headrace.frames.result import text_table
from headrace.pipeline import Pipeline
from headrace.runtimes.status_file import read_status

LOG: Final = "spark.log"
LARGE: Final = 10_000_000
"""Bytes of the file from which on a new one is begun."""
THEIRS: Final = ("py4j", "pyspark")
"""Loggers whose records belong into the file."""


def told_to(pipeline: Pipeline, as_json: bool, quiet: bool, show: Show) -> Callable[[Any], None]:
    """What to do with the progress of a micro-batch: show the status of the job, which `top` shows too."""

    def told(progress: Any) -> None:
        if as_json:
            print(json.dumps(asdict(progress)), file=sys.stderr)
            return
        try:
            show(read_status(pipeline))
        except PipelineError:  # without a checkpoint there is no status
            print(progress, file=sys.stderr)

    return (lambda progress: None) if quiet else told


def account(pipeline: Pipeline, result: Any, as_json: bool, quiet: bool) -> str:
    """The summary of a run, by query, with its newest answers and where its outputs are."""
    if as_json:
        return json.dumps({"pipeline": pipeline.name, **asdict(result)})
    lines = [f"{pipeline.name} is {result.state}"]
    for name, each in result.queries.items():
        read = ", ".join(f"{rows:,} rows of {stream}" for stream, rows in each.rows.items()) or "no new rows"
        said = f"{each.answers:,} answers, {each.late:,} late, {each.rejected:,} rejected"
        lines.append(f"  query {name}: {read}; {said}")
        lines += [line for stream in each.rows for line in apart(each.reasons, stream)]
    if result.state == "stopped" and pipeline.spec.pipeline.checkpoint:
        lines.append("  run it again to continue")
    if not quiet:
        for query in pipeline.queries:
            if query.name in result.queries and result.queries[query.name].answers:
                lines += _newest(pipeline, query.name, query.spec.sink)
            lines += places(pipeline, query)
    return "\n".join(lines)


def _newest(pipeline: Pipeline, name: str, sink: Any) -> Iterator[str]:
    """The newest answers that a query has written, if its sink writes files here."""
    reader = reader_of(sink, pipeline.path)
    tail = None if reader is None else reader.read()
    if tail is None or not tail.rows:
        return
    rows = tail.rows[-FIRST:]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(tail.columns)}
    yield f"\n  newest {'answer' if len(rows) == 1 else f'{len(rows)} answers'} of {name}:"
    yield textwrap.indent(text_table(pa.table(columns)), "    ")


# --- the file for the messages of Spark


def log_of(pipeline: Pipeline) -> Path:
    """Where Spark's messages go: to the checkpoint, or to a new temporary file."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        return Path(tempfile.mkdtemp(prefix="headrace-")) / LOG
    return pipeline.path(checkpoint) / "spark" / LOG


@contextmanager
def spark_writes_to(log: Path) -> Iterator[None]:
    """Standard error goes to a file, also for Java and the workers; Python's `sys.stderr` stays where it is.

    A file that has grown large is kept as `spark.log.1`. An error says where to look for more.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if log.exists() and log.stat().st_size > LARGE:
        log.replace(log.with_name(f"{log.name}.1"))
    number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(number, "w", buffering=1, errors="backslashreplace") as file:
        terminal, python = os.dup(2), sys.stderr
        os.dup2(file.fileno(), 2)
        ours = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace", closefd=False)
        try:
            sys.stderr = ours if _is_standard_error(python) else python
            with _records_to(file), _warnings_to(file):
                yield
        except SparkError as error:
            hint = "; ".join(filter(None, [error.hint, f"Spark's own messages are in {log}"]))
            raise SparkError(error.code, error.message, place=error.place, hint=hint) from error
        finally:
            sys.stderr = python
            ours.flush()
            os.dup2(terminal, 2)
            os.close(terminal)


def _is_standard_error(file: TextIO) -> bool:
    try:
        return file.fileno() == 2
    except (OSError, ValueError):
        return False


@contextmanager
def _records_to(file: TextIO) -> Iterator[None]:
    """Records of Spark's own loggers go to the file."""
    handler = logging.StreamHandler(file)
    loggers = [logging.getLogger(name) for name in THEIRS]
    before = [each.propagate for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.propagate = False
    try:
        yield
    finally:
        for each, propagate in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.propagate = propagate


@contextmanager
def _warnings_to(log: TextIO) -> Iterator[None]:
    """Warnings of Headrace are notes on the terminal; those of others go to the file."""
    with warnings.catch_warnings():

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, HeadraceWarning):
                print(f"note: {message}", file=sys.stderr)
            else:
                log.write(warnings.formatwarning(message, category, filename, lineno, line))

        warnings.showwarning = show
        yield
