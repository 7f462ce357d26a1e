"""`headrace run`: a runner, a view of it, and a clean stop."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from rich.console import Console
from rich.live import Live

from headrace.cli.outcome import first_answers
from headrace.cli.view import apart, as_line, as_table, ended, last_words, unused
from headrace.errors import PipelineError, SparkError
from headrace.memory.budget import keep_freed_memory
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import write_status

Show = Callable[[Status], None]
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
    runner = SparkRunner(
        pipeline,
        reset=restart.reset,
        reload=restart.reload,
        say=lambda message: None if quiet or as_json else print(f"note: {message}", file=sys.stderr),
    )

    def told(progress: Any) -> None:
        if not quiet:
            print(json.dumps(asdict(progress)) if as_json else progress, file=sys.stderr)

    with _stopping(runner):
        result = runner.run(on_progress=told)
    print(_account(pipeline, result, as_json), file=sys.stderr if _prints(pipeline) else sys.stdout)
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


def _account(pipeline: Pipeline, result: Any, as_json: bool) -> str:
    """The summary of a run on Spark, by query."""
    if as_json:
        return json.dumps({"pipeline": pipeline.name, **asdict(result)})
    lines = [f"{pipeline.name} is {result.state}"]
    for name, each in result.queries.items():
        read = ", ".join(f"{rows:,} rows of {stream}" for stream, rows in each.rows.items()) or "no new rows"
        told = f"{each.answers:,} answers, {each.late:,} late, {each.rejected:,} rejected"
        lines.append(f"  query {name}: {read}; {told}")
        lines += [line for stream in each.rows for line in apart(each.reasons, stream)]
    if result.state == "stopped" and pipeline.spec.pipeline.checkpoint:
        lines.append("  run it again to continue")
    return "\n".join(lines)


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
