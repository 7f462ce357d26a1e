"""`headrace.run`: a query over live sources, or a pipeline file, whose results come while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from headrace import tuning
from headrace.connectors.inbox import Inbox
from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA, late_rows, rejected_rows
from headrace.errors import HeadraceError, InputError
from headrace.flow.batch import Batch
from headrace.frames.answer import answer_times, named_sources
from headrace.frames.live_sources import PLACE, Columns, Options, Sources
from headrace.frames.result import Result
from headrace.frames.sources import Time
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.status import Status
from headrace.runtimes.status_file import write_status
from headrace.runtimes.why import Why
from headrace.sql import Query
from headrace.time.punctuation import Late, Rejected

Subscriber = Callable[[Result], object]
EVERY: Final = 0.5
"""Seconds between two measurements of the status."""


def run(
    what: str | Path | Pipeline | Query,
    sources: Mapping[str, Any] | None = None,
    /,
    *,
    time: Time = None,
    schema: Columns | Mapping[str, Columns] | None = None,
    bounds: Mapping[str, Mapping[str, Any]] | None = None,
    **named: Any,
) -> Run:
    """Run a query over live sources, or a pipeline file, in this process; results come while it runs.

        for batch in headrace.run("SELECT item, price FROM bids WHERE price > 90", bids=bids()):
            print(batch.to_dicts(), batch.late)

    `async for` works as well, and `headrace.run(…).subscribe(function).start()` calls a function in a thread.

    `what` is the text of a query, a `Query`, the path of a pipeline file (`.toml`), or a `Pipeline`. Each
    source of a query is a keyword, or an entry of the mapping `sources`: an iterator or a generator function
    that yields rows (dicts, lists of dicts, tables), and may wait for them; an async iterator, with `async
    for`; the source table of a pipeline file (`{"type": "tcp", "port": 9000}`); or a table or file as in
    `headrace.sql`. For a pipeline file, they are the Python functions that the file names.

    `time` names the time column, as in `headrace.sql`. Rows of a live source without a column of times count
    at the instant at which they come. `schema` declares the columns of a source (`{"bids": "item STRING, at
    TIMESTAMP"}`); otherwise they are those of its first rows. `bounds` says how late rows may be, as in a
    pipeline file: `{"bids": {"latency": "5 seconds"}}`. Without bounds, the rows of a live source must be in
    order.
    """
    given = named_sources(sources, named, PLACE)
    pipeline = _as_pipeline(what, given)
    if pipeline is not None:
        return Run(lambda: pipeline, Sources({}, lambda: None), threading.Event())
    assert isinstance(what, (str, Query))
    arrived = threading.Event()
    live = Sources(given, arrived.set)
    options = Options(time, _by_name(schema, given), bounds or {})
    found = Run(lambda: live.pipeline(what, options), live, arrived)
    if not live.needs_rows(what, options):
        found.prepare()  # an error in the query is raised here, not with the first row
    return found


def _as_pipeline(what: object, given: Mapping[str, Any]) -> Pipeline | None:
    """The pipeline that a path means; None for a query."""
    if isinstance(what, Pipeline):
        return what
    if isinstance(what, Path) or (isinstance(what, str) and what.endswith(".toml")):
        return load(what, functions=given)
    if isinstance(what, (str, Query)):
        return None
    raise InputError(
        "HR-I075",
        f"cannot run an object of type {type(what).__name__}",
        place=PLACE,
        hint="pass the text of a query, a Query, the path of a pipeline file, or a Pipeline",
    )


def _by_name(schema: Columns | Mapping[str, Columns] | None, given: Collection[str]) -> dict[str, Columns]:
    """The declared columns by source; one declaration is for the only source."""
    if schema is None:
        return {}
    if isinstance(schema, Mapping):
        return dict(schema)
    if len(given) != 1:
        raise InputError(
            "HR-I077",
            f"schema does not say which of {len(given)} sources it is for",
            place=PLACE,
            hint='write schema={"name": "…"}',
        )
    return dict.fromkeys(given, schema)


class Run:
    """A run in this process, which begins when it is iterated over or started, once.

    Each result has the rows that came at one step, the name of its query, and the late and rejected rows
    since the one before; if there are only those, the result has no rows. Leaving the loop stops the run: a
    pipeline with a checkpoint commits, and the next run continues. Results come before they are committed,
    so those since the last commit come again after a crash.
    """

    def __init__(self, make: Callable[[], Pipeline], sources: Sources, arrived: threading.Event) -> None:
        self._make, self._sources, self._arrived = make, sources, arrived
        self._pipeline: Pipeline | None = None
        self._runner: Runner | None = None
        self._status: Status | None = None
        self._results: deque[Result] = deque()
        self._subscribers: list[tuple[str | None, Subscriber]] = []
        self._begun = self._stopped = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def prepare(self) -> Pipeline:
        """The pipeline that runs; waits for the first row of a source whose columns are not known."""
        if self._pipeline is None:
            self._pipeline = self._make()
        return self._pipeline

    # --- results, one after the other

    def __iter__(self) -> Iterator[Result]:
        self._claim()
        if self._sources.asynchronous:
            raise InputError(
                "HR-I081",
                f"{', '.join(self._sources.asynchronous)} can only be read by an event loop",
                place=PLACE,
                hint="write async for, or pass an iterator that is not async",
            )
        return self._iterate()

    def _iterate(self) -> Iterator[Result]:
        steps = self._steps()
        try:
            for _ in steps:
                yield from self._taken()
            yield from self._taken()
        finally:
            self._finish(steps)

    def __aiter__(self) -> AsyncIterator[Result]:
        self._claim()
        return self._iterate_async()

    async def _iterate_async(self) -> AsyncIterator[Result]:
        """Steps run in one thread of their own, so that the event loop never waits for them."""
        loop = asyncio.get_running_loop()
        pumps = [
            loop.create_task(_pump(self._sources.async_rows(name), self._sources.inboxes[name]))
            for name in self._sources.asynchronous
        ]
        steps = self._steps()
        pool = ThreadPoolExecutor(1, "headrace-run")
        try:
            while await loop.run_in_executor(pool, _advance, steps):
                for each in self._taken():
                    yield each
            for each in self._taken():
                yield each
        finally:
            for pump in pumps:
                pump.cancel()
            self._sources.end()
            await asyncio.shield(loop.run_in_executor(pool, self._finish, steps))
            pool.shutdown(wait=False)
            await asyncio.gather(*pumps, return_exceptions=True)

    # --- results, in the background

    def subscribe(self, function: Subscriber, query: str | None = None) -> Self:
        """Call a function with each result, or with those of one query, once the run is started."""
        self._subscribers.append((query, function))
        return self

    def start(self) -> Self:
        """Run in a thread. `wait` waits for its end, and raises what went wrong."""
        results = iter(self)
        self._thread = threading.Thread(
            target=self._deliver, args=(results,), daemon=True, name="headrace-run"
        )
        self._thread.start()
        return self

    def _deliver(self, results: Iterator[Result]) -> None:
        """Call the subscribers with each result; an error of one of them ends the run."""
        try:
            for result in results:
                for query, function in self._subscribers:
                    if query in (None, result.query):
                        function(result)
        # A subscriber is the user's code, and may raise anything: `wait` raises it again.
        except BaseException as error:
            self._error = error
        finally:
            results.close()  # type: ignore[attr-defined]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until a run in a thread has ended; false if it has not after `timeout` seconds."""
        if self._thread is None:
            return not self._begun
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stop after the current step, with a commit. Any thread may call it."""
        self._stopped = True
        if self._runner is not None:
            self._runner.stop()
        self._sources.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.wait()

    # --- what it says about itself

    @property
    def status(self) -> Status | None:
        """Streams, queries, memory and waits, at most half a second old; None before the first step."""
        return self._status

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is probably a mistake, such as a stream that others may wait for without end."""
        return self.prepare().warnings

    def why(self) -> Why | None:
        """Why queries wait: for which stream, since when, and what would help."""
        return None if self._status is None else Why.of(self._status)

    def _repr_html_(self) -> str:
        """The status or, before the first step, the plans of the queries."""
        if self._status is not None:
            return self._status._repr_html_()
        if self._pipeline is None:
            return "<p>a run that has not begun</p>"
        return "".join(each.query._repr_html_() for each in self._pipeline.queries)

    # --- running

    def _claim(self) -> None:
        if self._begun:
            raise InputError(
                "HR-I082",
                "this run has already begun",
                place=PLACE,
                hint="call headrace.run again; a generator that was used up must be made again, too",
            )
        self._begun = True

    def _steps(self) -> Iterator[None]:
        """Start the threads of the sources, then run step by step."""
        self._sources.start_threads()
        pipeline = self.prepare()
        self._runner = Runner(pipeline, wait=self._pause, observe=self._observe)
        if self._stopped:
            self._runner.stop()
        yield from self._runner.stepwise(on_progress=self._progressed, every=EVERY)

    def _pause(self, seconds: float) -> None:
        """Wait for rows, or for the clock."""
        self._arrived.wait(seconds)
        self._arrived.clear()

    def _progressed(self, status: Status) -> None:
        assert self._runner is not None
        self._status = status
        write_status(self._runner.pipeline, status)

    def _finish(self, steps: Iterator[None]) -> None:
        """Stop, and commit what was processed."""
        if self._runner is not None:
            self._runner.stop()
            for _ in steps:
                pass
        self._sources.end()

    def _observe(
        self, answers: Mapping[str, list[Batch]], late: list[Late], rejected: list[Rejected]
    ) -> None:
        """Make a result for each query that something came out of."""
        assert self._runner is not None
        for each in self._runner.pipeline.queries:
            batches = [batch for batch in answers.get(each.name, ()) if len(batch)]
            behind = [rows for rows in late if rows.stream in each.streams]
            refused = [rows for rows in rejected if rows.stream in each.streams]
            if batches or behind or refused:
                self._results.append(_result(each.query, each.name, batches, behind, refused))

    def _taken(self) -> Iterator[Result]:
        while self._results:
            yield self._results.popleft()


def _result(
    query: Query, name: str, batches: list[Batch], late: list[Late], rejected: list[Rejected]
) -> Result:
    return Result(
        pa.Table.from_batches([batch.data for batch in batches], query.schema),
        answer_times(query, batches),
        pa.Table.from_batches([late_rows(late)] if late else [], LATE_SCHEMA),
        pa.Table.from_batches([rejected_rows(rejected)] if rejected else [], REJECTED_SCHEMA),
        name,
    )


def _advance(steps: Iterator[None]) -> bool:
    """One step; false if there are no more. A future cannot raise StopIteration."""
    return next(steps, steps) is None


async def _pump(rows: Any, inbox: Inbox) -> None:
    """Read an async iterator to its end; while the inbox is full, wait without holding up the event loop."""
    try:
        async for each in rows:
            while inbox.is_full:
                await asyncio.sleep(tuning.current.poll_seconds)
            if each is not None and not inbox.put(each):
                break
    except asyncio.CancelledError:
        inbox.end()
        raise
    # The iterator is the user's code, and may raise anything.
    except BaseException as error:
        inbox.end(error)
    else:
        inbox.end()
    finally:
        with suppress(HeadraceError, RuntimeError):
            if hasattr(rows, "aclose"):
                await rows.aclose()
