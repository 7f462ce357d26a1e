"""The commands and what they take; what they do is in the files beside this one.

Exit codes: 0, done; 1, an error with a code, on standard error; 2, wrong usage; 3, a run of which no row of
some stream could be used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from headrace.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help="Continuous queries over late, skewed, bursty or silent streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Json = Annotated[bool, typer.Option("--json", help="JSON for scripts, in place of text.")]


def main() -> None:
    """The entry point of `headrace`."""
    app()


def _saying(command: Callable[..., Any]) -> Callable[..., Any]:
    """Errors that a user can meet are told, not traced."""

    @wraps(command)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except HeadraceError as error:
            _fail(error, bool(kwargs.get("as_json")))

    return told


def _fail(error: HeadraceError, as_json: bool) -> NoReturn:
    if as_json:
        told = {"code": error.code, "message": error.message, "place": error.place, "hint": error.hint}
        print(json.dumps({"error": told}))
    else:
        print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(1)


@app.command()
@_saying
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write; made if it is not there.")] = Path(),
) -> None:
    """Write a commented pipeline that runs as it is."""
    from headrace.cli.init import write

    path = write(directory)
    print(f"wrote {path}; run it with: headrace run {path}")


@app.command()
@_saying
def check(pipeline: File, as_json: Json = False) -> None:
    """Read a pipeline and say what it means, or what is wrong with it; nothing runs."""
    from headrace.cli.check import describe, summary
    from headrace.pipeline import load

    found = load(pipeline)
    print(json.dumps(summary(found)) if as_json else describe(found))


@app.command()
@_saying
def run(
    pipeline: File,
    runtime: Annotated[str | None, typer.Option(help="embedded or spark; else as the file says.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Run a pipeline until its sources end; Ctrl-C stops it with a checkpoint."""
    from headrace.cli.run import run_pipeline

    raise typer.Exit(run_pipeline(pipeline, runtime, as_json, quiet))


@app.command()
@_saying
def replay(
    record: Annotated[Path, typer.Argument(help="The directory of a recorded run.")],
    into: Annotated[Path, typer.Argument(help="Where its outputs go this time.")],
    as_json: Json = False,
) -> None:
    """Run a recorded run again: the same instants, the same rows, the same bytes."""
    from headrace.cli.view import ended, last_words, unused
    from headrace.runtimes.embedded import replay as again

    progress = again(record, into).progress
    print(last_words(progress, as_json))
    raise typer.Exit(ended(unused(progress), as_json))


@app.command()
@_saying
def explain(
    pipeline: File,
    query: Annotated[str | None, typer.Argument(help="One query; else all of them.")] = None,
    format: Annotated[str, typer.Option(help="text, mermaid, svg or html.")] = "text",
) -> None:
    """Show what each query will do: plan, order, who may wait, partition keys."""
    from headrace.cli.explain import explained

    print(explained(pipeline, query, format))


@app.command()
@_saying
def why(pipeline: File, as_json: Json = False) -> None:
    """Say what each operator of a running or stopped pipeline waits for, and what would release it."""
    from headrace.cli.status import read
    from headrace.cli.why import reasons

    status = read(pipeline)
    found = reasons(status)
    print(json.dumps(found) if as_json else "\n".join(found))


@app.command()
@_saying
def top(
    pipeline: File,
    once: Annotated[bool, typer.Option("--once", help="Show it once and leave.")] = False,
) -> None:
    """Watch a running pipeline from another terminal."""
    from headrace.cli.top import watch

    watch(pipeline, once)


@app.command()
@_saying
def experiment(
    names: Annotated[list[str] | None, typer.Argument(help="Names, or `all`; none lists them.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Ten times longer.")] = False,
    real: Annotated[bool, typer.Option("--real", help="In real time, not on the simulated clock.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Say what there is.")] = False,
) -> None:
    """Reproduce figures of the papers: numbers, pictures, and whether each claim holds."""
    from headrace.cli.experiment import experiment as run_experiments

    if not run_experiments(names or [], full, real, listed):
        raise typer.Exit(1)


@app.command()
@_saying
def bench(
    name: Annotated[str | None, typer.Argument(help="A benchmark; none lists them.")] = None,
    queries: Annotated[list[str] | None, typer.Argument(help="nexmark: queries; else all.")] = None,
    runtime: Annotated[str | None, typer.Option(help="nexmark: embedded or spark.")] = None,
    events: Annotated[int | None, typer.Option(help="nexmark: how many events.")] = None,
) -> None:
    """Measure: a benchmark of Headrace's source, each value beside its floor."""
    from headrace.cli.bench import bench as measured
    from headrace.cli.bench import listing

    if name is None:
        print(listing())
    elif code := measured(name, runtime, events, queries or []):
        raise typer.Exit(code)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look at this machine: what is there, what is missing, what to install."""
    from headrace.cli.doctor import examine, told

    found = examine()
    print(json.dumps([each.__dict__ for each in found]) if as_json else told(found))
    if any(not each.well and each.needed for each in found):
        raise typer.Exit(1)
