"""Causes in a query: its sink is slow, or its conditions let nothing through."""

from __future__ import annotations

from headrace import tuning
from headrace.runtimes.why.found import Case, Cause, Found, Scope
from headrace.runtimes.words import lasting


def _slow_sink(case: Case) -> bool:
    status, spent, least = case.status, case.asked.sink_seconds, tuning.current.slow_sink_seconds
    usual = min(status.span, tuning.current.stalled_seconds)
    if case.query in status.writing and case.age > max(least, usual):
        return True
    return spent > least and spent > status.span / 2


def _slow_sink_sentence(found: Found) -> str:
    case = found.cases[0]
    if case.query in case.status.writing and case.age > case.asked.sink_seconds:
        batch = "" if case.status.batch is None else f" micro-batch {case.status.batch}"
        return f"The sink of query {case.query} has been writing{batch} for {lasting(case.age)}."
    took, of = lasting(case.asked.sink_seconds), lasting(case.status.span)
    return f"The sink of query {case.query} took {took} of the last {of}; rows wait in the sources meanwhile."


def _drops(case: Case) -> bool:
    return case.asked.rows_out == 0 and any(each.query == case.query for each in case.status.dropping)


def _drops_sentence(found: Found) -> str:
    query = found.queries[0]
    found_in = next(each for each in found.status.dropping if each.query == query)
    if found_in.condition:
        return f"Query {query} has no results: its conditions let none of {found_in.rows:,} rows through."
    return f"Query {query} has no results: {found_in.operator} got {found_in.rows:,} rows, and none match."


SLOW_SINK = Cause(
    "slow sink",
    Scope.QUERY,
    _slow_sink,
    _slow_sink_sentence,
    lambda found: "Look at the system that it writes to.",
)

EVERYTHING_FILTERED_OUT = Cause(
    "everything filtered out",
    Scope.QUERY,
    _drops,
    _drops_sentence,
    lambda found: "Check the conditions of the query against its rows.",
)
