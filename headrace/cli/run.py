"""`headrace run`: a runner, a view of it, and a clean stop."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console
from rich.live import Live

from headrace.cli.outcome import first_answers
from headrace.cli.view import Show, as_line, as_table, ended, last_words, unused
from headrace.errors import PipelineError, SparkError
from headrace.memory.budget import keep_freed_memory
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.records import LOG, JsonLines
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import write_status

PAUSE: Final = 5.0


@dataclass(frozen=True)
class Restart:
    """What a restart should not take from the checkpoint: queries to reset, tables to reload."""

    reset: tuple[str, ...] = ()
    reload: tuple[str, ...] = ()


def run_pipeline(
    file: Path, runtime: str | None, as_json: bool, quiet: bool, restart: Restart | None = None
) -> int:
    """Run the pipeline in a file on the runtime that the command or the file names. Returns the exit code."""
    pipeline = load(file)
    for each in _said_first(pipeline, as_json, quiet):
        print(f"note: {each}", file=sys.stderr)
    home = RUNTIMES.get(runtime or pipeline.runtime)
    if home is None:
        raise PipelineError(
            "HR-F019",
            f"the runtime {runtime or pipeline.runtime!r} does not exist",
            place=str(file),
            hint=f"use --runtime {' or '.join(RUNTIMES)}",
        )
    return home(pipeline, as_json, quiet, restart or Restart())


@contextmanager
def logging_to(file: Path | None) -> Iterator[None]:
    """Add the records of a run to a file, as lines of JSON."""
    if file is None:
        yield
        return
    try:
        handler = logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            "HR-F032",
            f"the log cannot be written: {error.strerror}",
            place=str(file),
            hint="create its directory, or choose another file",
        ) from None
    handler.setFormatter(JsonLines())
    level = LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(level)
        handler.close()


def _said_first(pipeline: Pipeline, as_json: bool, quiet: bool) -> tuple[str, ...]:
    """The warnings to print before the run."""
    return () if as_json or quiet else pipeline.warnings


def _embedded(pipeline: Pipeline, as_json: bool, quiet: bool, restart: Restart) -> int:
    """Run in this process. Returns the exit code."""
    keep_freed_memory()
    runner = Runner(pipeline, reset=restart.reset, reload=restart.reload)
    with _stopping(runner), _showing(as_json, quiet) as show:

        def told(progress: Status) -> None:
            write_status(pipeline, progress)
            show(progress)

        result = runner.run(on_progress=told)
    said = _said_first(pipeline, as_json, quiet)
    words = last_words(result.progress, as_json, said)
    if not (as_json or quiet):
        words = "\n".join([words, *first_answers(pipeline, runner.outputs)])
    print(words, file=sys.stderr if _prints(pipeline) else sys.stdout)
    return ended(unused(result.progress), as_json)


def _prints(pipeline: Pipeline) -> bool:
    """Whether answers go to standard output, so that messages must go to standard error."""
    return any(query.spec.sink.type == "stdout" for query in pipeline.queries)


def _spark(pipeline: Pipeline, as_json: bool, quiet: bool, restart: Restart) -> int:
    """Run on Spark. Returns the exit code."""
    try:
        from headrace.spark import Runner as SparkRunner
    except SparkError as error:
        hint = f"{error.hint}, or run it without Spark: --runtime embedded"
        raise SparkError(error.code, error.message, place="pipeline.runtime", hint=hint) from None
    from headrace.cli.spark_run import account, log_of, spark_writes_to, told_to

    log = log_of(pipeline)
    runner = SparkRunner(
        pipeline,
        reset=restart.reset,
        reload=restart.reload,
        say=lambda message: None if quiet or as_json else print(f"note: {message}", file=sys.stderr),
    )
    with _stopping(runner), spark_writes_to(log):
        if not (quiet or as_json):
            print(f"note: starting Spark, whose own messages go to {log}", file=sys.stderr)
        with _showing(False, quiet or as_json) as show:
            result = runner.run(on_progress=told_to(pipeline, as_json, quiet, show))
    words = account(pipeline, result, as_json, quiet)
    print(words, file=sys.stderr if _prints(pipeline) else sys.stdout)
    return ended(_unused(result), as_json)


def _unused(result: Any) -> list[str]:
    """The streams of which no query could use a row."""
    found = []
    for each in result.queries.values():
        for stream, rows in each.rows.items():
            lost = sum(reason.rows for reason in each.reasons if reason.stream == stream)
            if rows and lost >= rows:
                found.append(stream)
    return list(dict.fromkeys(found))


RUNTIMES: Final[dict[str, Callable[[Pipeline, bool, bool, Restart], int]]] = {
    "embedded": _embedded,
    "spark": _spark,
}


class _Stoppable(Protocol):
    def stop(self) -> None: ...


@contextmanager
def _stopping(runner: _Stoppable) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops with a commit; the second stops immediately."""

    def stop(number: int, frame: Any) -> None:
        runner.stop()
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _showing(as_json: bool, quiet: bool) -> Iterator[Show]:
    """How to show progress: a live table on a terminal, else lines on standard error, or nothing."""
    console = Console(stderr=True)
    if quiet:
        yield lambda progress: None
    elif as_json:
        yield lambda progress: print(progress.text(), file=sys.stderr)
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield lambda progress: live.update(as_table(progress))
    else:
        yield _now_and_then(lambda progress: print(as_line(progress), file=sys.stderr))


def _now_and_then(show: Show) -> Show:
    """For logs: show progress every `PAUSE` seconds, and when the state changes."""
    last = (-PAUSE, "")

    def told(progress: Status) -> None:
        nonlocal last
        if progress.state != last[1] or progress.elapsed - last[0] >= PAUSE:
            last = (progress.elapsed, progress.state)
            show(progress)

    return told
