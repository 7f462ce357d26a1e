"""Why queries wait: the table of causes, and the search for those that hold.

Causes are looked for in the order of the table, the most specific first. A query has one sentence, that of
the first cause that holds for it; of several streams with the same cause, the one that is furthest behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headrace.runtimes.status import Status, Wait
from headrace.runtimes.why import of_query, of_run, of_stream
from headrace.runtimes.why.found import Case, Cause, Found, Scope

CAUSES: Final[tuple[Cause, ...]] = (
    of_run.RUN_FINISHED,
    of_run.FAILED_ON_BUDGET,
    of_run.RUN_FAILED,
    of_run.RUN_KILLED,
    of_run.RUN_STOPPED,
    of_run.RUN_STARTING,
    of_run.EXECUTOR_LOST,
    of_run.STALLED,
    of_run.CLOCK_STANDS_STILL,
    of_run.NOBODY_CONNECTED,
    of_query.SLOW_SINK,
    of_stream.NEVER_CONNECTED,
    of_stream.WRONG_CLOCK,
    of_stream.ROWS_REJECTED,
    of_stream.LATE_ROWS,
    of_stream.BACKLOG,
    of_stream.MISSING_SOURCE,
    of_stream.TIMES_STAND_STILL,
    of_stream.BOUND_NOT_PROVEN,
    of_query.EVERYTHING_FILTERED_OUT,
    of_run.BUDGET_TOO_SMALL,
    of_stream.SILENT_STREAM,
    of_stream.NORMAL_WAIT,
)
"""The causes, the most specific first."""


def causes_of(status: Status, age: float = 0.0) -> list[Found]:
    """What keeps the queries of a run waiting; `age` is how many seconds ago the status was written.

    Each query that waits is in one of the first; then come other causes, and waits that are normal last.
    """
    run = [Found(cause, (Case(status, age),)) for cause in _that_hold(Case(status, age), Scope.RUN)]
    alone = [each for each in run if each.cause.alone]
    if alone:
        return alone[:1]
    leading: dict[tuple[int, str, str], list[Case]] = {}
    others: dict[tuple[int, str, str], list[Case]] = {}
    also: dict[tuple[int, str, str], list[str]] = {}
    for query in status.queries:
        for rank, (cause, case) in enumerate(_of_query(status, age, query)):
            at = (CAUSES.index(cause), case.stream, case.query if cause.scope is Scope.QUERY else "")
            if not rank:
                leading.setdefault(at, []).append(case)
                first = at
            elif at[0] == first[0] and case.stream:
                also.setdefault(first, []).append(case.stream)
            elif not cause.normal:
                others.setdefault(at, []).append(case)
    found = [
        Found(CAUSES[at[0]], tuple(cases), tuple(dict.fromkeys(also.get(at, ()))))
        for at, cases in sorted(leading.items())
    ]
    rest = [Found(CAUSES[at[0]], tuple(cases)) for at, cases in sorted(others.items()) if at not in leading]
    return sorted([*run, *found, *rest], key=lambda each: (each.cause.normal, CAUSES.index(each.cause)))


def _of_query(status: Status, age: float, query: str) -> list[tuple[Cause, Case]]:
    """The causes in a query and its streams: the most specific first, then the stream furthest behind."""
    waits = tuple(wait for wait in status.waiting if wait.query == query)
    cases = [Case(status, age, query, waits=waits)]
    for name in _streams(status, query, waits):
        held = tuple(wait for wait in waits if name in wait.streams)
        cases.append(Case(status, age, query, name, held))
    found = []
    for case in cases:
        scope = Scope.STREAM if case.stream else Scope.QUERY
        cause = next(_that_hold(case, scope), None)
        if cause is not None:
            found.append((cause, case))
    return sorted(found, key=lambda each: (CAUSES.index(each[0]), each[1].behind if each[1].stream else ()))


def _streams(status: Status, query: str, waits: Iterable[Wait]) -> Iterator[str]:
    """The streams of a query that have a status."""
    names = dict.fromkeys((*status.queries[query].streams, *(s for wait in waits for s in wait.streams)))
    return (name for name in names if name in status.streams)


def _that_hold(case: Case, scope: Scope) -> Iterator[Cause]:
    return (cause for cause in CAUSES if cause.scope is scope and cause.holds(case))
