"""The commands and their options; the other files of this package implement them.

Exit codes: 0, done; 1, an error, printed on standard error; 2, wrong usage; 3, a run that could not use a
single row of some stream.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from headrace import __version__
from headrace.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help="Streaming SQL over late, skewed, bursty or idle streams.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

File = Annotated[Path, typer.Argument(help="The pipeline file.")]
Watched = Annotated[
    Path, typer.Argument(help="The pipeline file, or the checkpoint directory of a job on Spark.")
]
START, WATCH, CHANGE, CHECKOUT = "Start", "Watch", "Change", "In a checkout of the repository"
"""The groups of commands that `headrace` lists."""
HERE: Final = Path("pipeline.toml")
"""The pipeline file of commands that are called without one."""
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main() -> None:
    """The entry point of `headrace`."""
    app()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Streaming SQL over late, skewed, bursty or idle streams."""


def _saying(command: Callable[..., Any]) -> Callable[..., Any]:
    """Print errors of Headrace without a traceback, and exit with code 1."""

    @wraps(command)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except HeadraceError as error:
            _fail(error, bool(kwargs.get("as_json")))

    return told


def _fail(error: HeadraceError, as_json: bool) -> NoReturn:
    """Print an error and exit with code 1."""
    if as_json:
        print(json.dumps({"error": error.plain()}))
    else:
        print(f"error: {error}", file=sys.stderr)
    raise typer.Exit(1)


@app.command(rich_help_panel=START)
@_saying
def init(
    directory: Annotated[Path, typer.Argument(help="Where to write; created if it does not exist.")] = Path(),
    data: Annotated[
        Path | None, typer.Option("--from", help="A file whose columns and time are inferred.")
    ] = None,
    time: Annotated[str | None, typer.Option(help="With --from: the time column.")] = None,
) -> None:
    """Write a commented pipeline that is ready to run, with generated rows or for a file."""
    from headrace.cli.init import TEXT, write

    if data is None:
        text = TEXT
    else:
        from headrace.cli.infer import pipeline_text

        text = pipeline_text(data, directory, time)
    path = write(directory, text)
    print(f"wrote {path}; run it with: headrace run {path}")


@app.command(rich_help_panel=START)
@_saying
def check(pipeline: File = HERE, as_json: Json = False) -> None:
    """Check a pipeline file without running it, and show its streams and queries."""
    from headrace.cli.check import describe, summary
    from headrace.pipeline import load

    found = load(pipeline)
    print(json.dumps(summary(found)) if as_json else describe(found))


@app.command(rich_help_panel=START)
@_saying
def run(
    pipeline: File = HERE,
    runtime: Annotated[str | None, typer.Option(help="embedded or spark; default: as the file says.")] = None,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    reset: Annotated[
        list[str] | None,
        typer.Option(help="A query that starts empty, whatever the checkpoint has. Repeatable."),
    ] = None,
    reload: Annotated[
        list[str] | None, typer.Option(help="A table whose new rows are used from here on. Repeatable.")
    ] = None,
    page: Annotated[bool, typer.Option("--page", help="Serve a page that shows the run.")] = False,
    port: Annotated[int | None, typer.Option(help="With --page: its port; default: 8765 or above.")] = None,
    log: Annotated[Path | None, typer.Option(help="A file to add what happens to, as lines of JSON.")] = None,
) -> None:
    """Run a pipeline until its sources end. Ctrl-C stops it with a checkpoint."""
    from headrace.cli.run import Restart, logging_to, run_pipeline

    restart = Restart(tuple(reset or ()), tuple(reload or ()))
    with logging_to(log), _page_beside(pipeline, port) if page else nullcontext():
        code = run_pipeline(pipeline, runtime, as_json, quiet, restart)
    raise typer.Exit(code)


@contextmanager
def _page_beside(pipeline: Path, port: int | None) -> Iterator[None]:
    """Serve the page beside a run, and say where."""
    from headrace.dashboard.serving import Address, Served

    served = Served(pipeline, Address(port=port))
    with served.beside():
        print(f"page: {served.url}", file=sys.stderr, flush=True)
        yield


@app.command(rich_help_panel=WATCH)
@_saying
def page(
    pipeline: File = HERE,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="The port; default: 8765 or above.")] = None,
    token: Annotated[bool, typer.Option(help="Whether the page needs the token of its link.")] = True,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no commands.")] = False,
) -> None:
    """Serve a page that shows a pipeline and takes commands for it, on either runtime."""
    from headrace.dashboard.serving import Address, Served

    served = Served(pipeline, Address(host, port, token, read_only))
    print(f"page: {served.url}", flush=True)
    served.run()


@app.command(rich_help_panel=WATCH)
@_saying
def replay(
    record: Annotated[Path, typer.Argument(help="The directory of a recorded run.")],
    into: Annotated[Path, typer.Argument(help="The directory for the outputs of the replay.")],
    as_json: Json = False,
) -> None:
    """Repeat a recorded run: the same rows at the same times give the same outputs, byte for byte."""
    from headrace.cli.view import ended, last_words, unused
    from headrace.runtimes.embedded import replay as again

    progress = again(record, into).progress
    print(last_words(progress, as_json))
    raise typer.Exit(ended(unused(progress), as_json))


@app.command(rich_help_panel=START)
@_saying
def bounds(
    data: Annotated[
        Path, typer.Argument(help="Rows in order of arrival, a recorded run, or the pipeline file of a run.")
    ] = HERE,
    time: Annotated[str | None, typer.Option(help="The time column. Default: the only one.")] = None,
    arrival: Annotated[str | None, typer.Option(help="A column with the instant of arrival.")] = None,
    value: Annotated[str | None, typer.Option(help="A column of numbers: errors of sum and avg.")] = None,
    unit: Annotated[str | None, typer.Option(help="The unit of columns of numbers: s, ms, us or ns.")] = None,
    window: Annotated[str | None, typer.Option(help='The size of windows; default: "1 minute".')] = None,
    bound: Annotated[list[str] | None, typer.Option(help='A bound to try: "10 s". Repeatable.')] = None,
    against: Annotated[str, typer.Option(help="Bounds behind the newest row or the clock.")] = "newest",
    late: Annotated[str, typer.Option(help="What happens to late rows: strict or admit.")] = "strict",
    stream: Annotated[str | None, typer.Option(help="One of the streams of a run.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a plot to this file.")] = None,
    as_json: Json = False,
) -> None:
    """Show what each bound on late rows costs: late rows, delay of answers, errors of windows."""
    from headrace.cli.bounds import show_bounds
    from headrace.frames.bound_costs import Asked

    asked = Asked(time, arrival, value, unit, window, tuple(bound or ()), against, late)
    show_bounds(data, asked, stream, svg, as_json)


@app.command(rich_help_panel=START)
@_saying
def explain(
    pipeline: File,
    query: Annotated[str | None, typer.Argument(help="The name of one query; default: all.")] = None,
    format: Annotated[str, typer.Option(help="text, mermaid, svg or html.")] = "text",
) -> None:
    """Show the plan of each query, where rows are sorted or wait, and the partition keys."""
    from headrace.cli.check import explained

    print(explained(pipeline, query, format))


@app.command(rich_help_panel=WATCH)
@_saying
def why(
    pipeline: Watched = HERE,
    answers: Annotated[
        bool, typer.Option("--answers", help="Show the answers that wait, and what could change them.")
    ] = False,
    most: Annotated[int, typer.Option(help="With --answers: how many of each query.", min=1)] = 20,
    as_json: Json = False,
) -> None:
    """Show why each query of a pipeline waits: the stream, since when, and what would release it."""
    if answers:
        from headrace.cli.answers import waiting

        known = waiting(pipeline, most)
        print(json.dumps(known.plain(), default=str) if as_json else known)
        return
    from headrace.runtimes.status_file import read
    from headrace.runtimes.why import Why

    found = Why.of(read(pipeline))
    print(json.dumps(found.plain()) if as_json else found)


@app.command(rich_help_panel=WATCH)
@_saying
def status(pipeline: Watched = HERE, as_json: Json = False) -> None:
    """Show the newest status of a pipeline: streams, queries, memory."""
    from headrace.cli.view import print_table
    from headrace.runtimes.status_file import read

    found = read(pipeline)
    if as_json:
        print(found.text())
    else:
        print_table(found)


@app.command(rich_help_panel=WATCH)
@_saying
def top(
    pipeline: Watched = HERE,
    once: Annotated[bool, typer.Option("--once", help="Show it once and exit.")] = False,
) -> None:
    """Watch a running pipeline from another terminal."""
    from headrace.cli.view import watch

    watch(pipeline, once)


class QueryGroup(TyperGroup):
    """`headrace query`: what follows is a command or, if it has several words, the text of a query."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        is_text = bool(args) and (args[0] == "-" or len(args[0].split()) > 1)
        if not is_text and any(_is_query(each) for each in args[1:]) and args[0] not in self.commands:
            ctx.fail(f'the query comes before its files: headrace query "SELECT …" {args[0]}')
        return super().resolve_command(ctx, ["ask", *args] if is_text else args)


def _is_query(word: str) -> bool:
    return word.split(maxsplit=1)[:1] != [word] and word.lstrip().upper().startswith(("SELECT", "WITH"))


query_app = typer.Typer(
    cls=QueryGroup,
    no_args_is_help=True,
    help='Answer a query over files: headrace query "SELECT …" FILE. '
    "Or add, remove, pause and list the queries of a pipeline.",
)
app.add_typer(query_app, name="query", rich_help_panel=START)
control_app = typer.Typer(
    no_args_is_help=True, help="Change a pipeline while it runs, or before its next run."
)
app.add_typer(control_app, name="control", rich_help_panel=CHANGE)


@query_app.command("ask")
@_saying
def query_ask(
    text: Annotated[str, typer.Argument(help="The text of the query; - reads it from standard input.")],
    files: Annotated[
        list[str] | None, typer.Argument(help="FILE or NAME=FILE: CSV, JSON lines, Parquet or Arrow.")
    ] = None,
    time: Annotated[
        list[str] | None,
        typer.Option(help="The time column: COLUMN, or NAME=COLUMN for each file. Default: the only one."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as JSON lines.")] = False,
) -> None:
    """Answer a query over files; the word ask may be left out."""
    from headrace.cli.ask import ask

    said = ask(text, files or (), time or (), rows, as_json)
    if said:
        print(said)


@query_app.command("add")
@_saying
def query_add(
    pipeline: File,
    name: Annotated[str, typer.Argument(help="The name of the new query.")],
    sql: Annotated[str | None, typer.Argument(help="Its text; - reads it from standard input.")] = None,
    sink: Annotated[
        str, typer.Option(help="Where results go: a path relative to the pipeline file, or a table as in it.")
    ] = ...,  # type: ignore[assignment]
    sql_file: Annotated[Path | None, typer.Option(help="A file with the text of the query.")] = None,
    late: Annotated[str | None, typer.Option(help="Where late rows go.")] = None,
    rejected: Annotated[str | None, typer.Option(help="Where rejected rows go.")] = None,
    existing: Annotated[
        str | None, typer.Option(help="What to do with outputs that exist: error, replace or append.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Add a column of this name with the time of each row.")
    ] = None,
    importance: Annotated[
        float | None, typer.Option(help="How much its quality counts where a budget makes windows smaller.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add a query to a pipeline. It covers rows that are read from now on."""
    from headrace.cli.control import query_command, send

    command = query_command(name, sql, sql_file, sink, late, rejected, existing, time, importance)
    print(send(pipeline, command, as_json))


@query_app.command("remove")
@_saying
def query_remove(
    pipeline: File,
    name: Annotated[str, typer.Argument(help="The name of the query.")],
    as_json: Json = False,
) -> None:
    """Remove a query from a pipeline. What it has written stays."""
    from headrace.cli.control import send
    from headrace.control import RemoveQuery

    print(send(pipeline, RemoveQuery(name), as_json))


@query_app.command("pause")
@_saying
def query_pause(
    pipeline: File,
    name: Annotated[str, typer.Argument(help="The name of the query.")],
    as_json: Json = False,
) -> None:
    """Hold the answers of a query until it is resumed; none is lost."""
    from headrace.cli.control import send
    from headrace.control import Pause

    print(send(pipeline, Pause(name), as_json))


@query_app.command("resume")
@_saying
def query_resume(
    pipeline: File,
    name: Annotated[str, typer.Argument(help="The name of the query.")],
    as_json: Json = False,
) -> None:
    """Write the answers of a paused query again, those that were held first."""
    from headrace.cli.control import send
    from headrace.control import Resume

    print(send(pipeline, Resume(name), as_json))


@query_app.command("list")
@_saying
def query_list(pipeline: File, as_json: Json = False) -> None:
    """List the queries of a pipeline: those of its file and those that were added by commands."""
    from headrace.cli.control import queries

    print(queries(pipeline, as_json))


@control_app.callback()
def control(context: typer.Context, pipeline: File) -> None:
    """Change a pipeline while it runs, or before its next run."""
    context.obj = pipeline


@control_app.command("budget")
@_saying
def control_budget(
    context: typer.Context,
    budget: Annotated[str, typer.Argument(help='Such as "64 MB" or "25 %"; none: no budget.')],
    policy: Annotated[str, typer.Option(help="If the smallest windows do not fit: fail or spill.")] = "fail",
    as_json: Json = False,
) -> None:
    """Set the memory budget."""
    from headrace.cli.control import send
    from headrace.control import SetBudget

    print(send(context.obj, SetBudget(None if budget == "none" else budget, policy), as_json))


@control_app.command("bounds")
@_saying
def control_bounds(
    context: typer.Context,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    disorder: Annotated[str | None, typer.Option(help="How far rows may be behind the newest one.")] = None,
    slack: Annotated[str | None, typer.Option(help="How many rows late rows may be: 10 rows.")] = None,
    latency: Annotated[str | None, typer.Option(help="How far rows may be behind the clock.")] = None,
    transit: Annotated[str | None, typer.Option(help="How long rows may take from their source.")] = None,
    guard: Annotated[str | None, typer.Option(help="How far rows may be ahead of the clock.")] = None,
    as_json: Json = False,
) -> None:
    """Set how late the rows of a stream may be. Write none to remove a bound."""
    from headrace.cli.control import bounds_command, send

    written = {"disorder": disorder, "slack": slack, "latency": latency, "transit": transit, "guard": guard}
    print(send(context.obj, bounds_command(stream, written), as_json))


@control_app.command("strategy")
@_saying
def control_strategy(
    context: typer.Context,
    strategy: Annotated[
        str, typer.Argument(help="auto, dfs, bfs, rr, chain or edf, or with a batch size: dfs(100).")
    ],
    query: Annotated[
        str | None, typer.Option("--query", metavar="NAME", help="Only for the operators of this query.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Set the order in which operators run: all, or those of a query."""
    from headrace.cli.control import send
    from headrace.control import SetStrategy

    print(send(context.obj, SetStrategy(strategy, query), as_json))


@control_app.command("level")
@_saying
def control_level(
    context: typer.Context,
    level: Annotated[str, typer.Argument(help="query, operator or memory.")],
    as_json: Json = False,
) -> None:
    """Set the level at which watermarks are made."""
    from headrace.cli.control import send
    from headrace.control import SetLevel

    print(send(context.obj, SetLevel(level), as_json))


@control_app.command("resize")
@_saying
def control_resize(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help="The query.")],
    size: Annotated[str, typer.Argument(help='The new size, within the bounds in the query: "2 hours".')],
    of: Annotated[
        str | None, typer.Option(help="The stream of the window, or granularity, if there are several.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="The time of the first row that it holds for; default: at once.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Change a window or a granularity of a query."""
    from headrace.cli.control import send
    from headrace.control import Resize

    print(send(context.obj, Resize(query, size, of, since), as_json))


@control_app.command("reload")
@_saying
def control_reload(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="The table; it needs reload in the pipeline file.")],
    since: Annotated[
        str | None, typer.Option(help="The time from which the new rows count; default: at once.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read a lookup table again, and use its rows from now on."""
    from headrace.cli.control import send
    from headrace.control import Reload

    print(send(context.obj, Reload(table, since), as_json))


@control_app.command("punctuate")
@_saying
def control_punctuate(
    context: typer.Context,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    patterns: Annotated[
        list[str] | None, typer.Argument(help="Such as auction=7, region=eu,us or price=10..20.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Only rows up to this time.")] = None,
    as_json: Json = False,
) -> None:
    """Promise that no more rows of a stream match all of these patterns."""
    from headrace.cli.control import punctuate_command, send

    print(send(context.obj, punctuate_command(stream, patterns or [], until), as_json))


@control_app.command("heartbeat")
@_saying
def control_heartbeat(
    context: typer.Context,
    stream: Annotated[str, typer.Argument(help="The stream.")],
    time: Annotated[str, typer.Argument(help="Such as 2024-05-01T12:00:00Z, or a number of ticks.")],
    as_json: Json = False,
) -> None:
    """Promise that later rows of a stream have later times than this (a watermark)."""
    from headrace.cli.control import send
    from headrace.control import Heartbeat

    print(send(context.obj, Heartbeat(stream, time), as_json))


@control_app.command("stop")
@_saying
def control_stop(context: typer.Context, as_json: Json = False) -> None:
    """Stop the run with a checkpoint; the next run continues."""
    from headrace.cli.control import send
    from headrace.control import Stop

    print(send(context.obj, Stop(), as_json))


@control_app.command("history")
@_saying
def control_history(context: typer.Context, as_json: Json = False) -> None:
    """List the commands so far, and what became of them."""
    from headrace.cli.control import history

    print(history(context.obj, as_json))


@app.command(rich_help_panel=CHECKOUT)
@_saying
def experiment(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names, or `all`; without a name, list them.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Run ten times longer.")] = False,
    real: Annotated[
        bool, typer.Option("--real", help="Run in real time instead of on the simulated clock.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Reproduce the figures of the papers: numbers, pictures, and whether each claim holds."""
    from headrace.cli.experiment import experiment as run_experiments

    if not run_experiments(names or [], full, real, listed):
        raise typer.Exit(1)


@app.command(rich_help_panel=CHECKOUT)
@_saying
def bench(
    name: Annotated[
        str | None, typer.Argument(help="The name of a benchmark; without one, list them.")
    ] = None,
    queries: Annotated[
        list[str] | None, typer.Argument(help="nexmark: names of queries; default: all.")
    ] = None,
    runtime: Annotated[str | None, typer.Option(help="nexmark: embedded or spark.")] = None,
    events: Annotated[int | None, typer.Option(help="nexmark: how many events.")] = None,
) -> None:
    """Run a benchmark from the source tree and compare each value with its floor."""
    from headrace.cli.experiment import bench as measured
    from headrace.cli.experiment import listing

    if name is None:
        print(listing())
    elif code := measured(name, runtime, events, queries or []):
        raise typer.Exit(code)


@app.command(rich_help_panel=START)
def doctor(as_json: Json = False) -> None:
    """Check this machine: what is installed, what is missing, what to install."""
    from headrace.cli.doctor import examine, told

    found = examine()
    print(json.dumps([each.__dict__ for each in found]) if as_json else told(found))
    if any(not each.well and each.needed for each in found):
        raise typer.Exit(1)
