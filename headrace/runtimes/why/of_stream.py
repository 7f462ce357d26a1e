"""Causes in a stream that a query reads: silent, behind, late, rejected, or with a wrong clock."""

from __future__ import annotations

from typing import Final

from headrace import tuning
from headrace.runtimes.status import RUNNING
from headrace.runtimes.why.found import Case, Cause, Found, Scope
from headrace.runtimes.why.sentences import bound, patience, set_bound, silent_since, source, subject, waited
from headrace.runtimes.words import lasting, length
from headrace.time.timestamp import MIN_TIME

GUARDED: Final = "HR-R002"
"""The code of rows that are further ahead of the clock than the guard allows."""


def _unconnected(case: Case) -> bool:
    stream, status = case.read, case.status
    waited = case.waits or case.longer(status.begun, tuning.current.silent_seconds)
    return not stream.rows_in and not stream.ended and status.state == RUNNING and bool(waited)


def _rejects(case: Case, guarded: bool) -> bool:
    """Whether most rows that came last were rejected, by the guard or for other reasons."""
    recent = case.read.recent
    codes = {r.code for r in case.status.reasons if r.stream == case.stream and r.kind == "rejected"}
    return recent.rejected * 2 > recent.rows and (GUARDED in codes) == guarded


def _rejected_sentence(found: Found, why: str) -> str:
    recent = found.read.recent
    return (
        f"Stream {found.stream}{source(found)} had {recent.rejected:,} of its last {recent.rows:,} rows "
        f"rejected{why}.{_and_waiting(found)}"
    )


def _first_reason(found: Found) -> str:
    """The most frequent reason for which rows of the stream were rejected."""
    reasons = [r for r in found.status.reasons if r.stream == found.stream and r.kind == "rejected"]
    return f": {reasons[0].first} ({reasons[0].code})" if reasons else ""


def _and_waiting(found: Found) -> str:
    """That queries wait meanwhile, if they do."""
    if not found.waits or found.waited is None:
        return ""
    who, has, _ = subject(found)
    return f" {who} {has} waited {lasting(found.waited)} for it."


def _late(case: Case) -> bool:
    return case.read.recent.late * 2 > case.read.recent.rows


def _late_sentence(found: Found) -> str:
    recent, per_second = found.read.recent, found.status.ticks_per_second
    worst = max((r.worst for r in found.status.reasons if r.stream == found.stream), default=0)
    by = f", by up to {length(worst, per_second)}" if worst else ""
    return (
        f"Stream {found.stream} had {recent.late:,} of its last {recent.rows:,} rows too late{by}; it is "
        f"{bound(found)}.{_and_waiting(found)}"
    )


def _late_hint(found: Found) -> str:
    key = "disorder" if found.read.latency is None else "latency"
    worst = max((r.worst for r in found.status.reasons if r.stream == found.stream), default=0)
    had = found.read.latency if found.read.latency is not None else found.read.disorder or 0
    value = length(worst + had, found.status.ticks_per_second)
    return (
        f"If these rows count, set {set_bound(found, key, value, 'in')}. Otherwise look at what delays them."
    )


def _backlog(case: Case) -> bool:
    read, status = case.read.read_until, case.status
    if read is None or case.silent or not case.read.rows_in:
        return False
    read = status.begun if read == MIN_TIME else read
    usual = max(tuning.current.silent_seconds, 3 * status.span if status.batch is not None else 0.0)
    return case.longer(read, usual)


def _backlog_sentence(found: Found) -> str:
    read = found.read.read_until
    how_far = (
        "not been read to its end once"
        if read in (None, MIN_TIME)
        else f"only been read up to {found.at(read or 0)}"
    )
    return (
        f"Stream {found.stream} has {how_far}: its rows come faster than they are read. It reads "
        f"{found.read.rows_per_second:,.0f} rows/s.{_and_waiting(found)}"
    )


def _backlog_hint(found: Found) -> str:
    if found.status.runtime == "spark":
        return (
            "Raise the rate limit of its source (maxFilesPerTrigger, maxOffsetsPerTrigger), or add executors."
        )
    return "Results are complete but late until it has caught up."


def _times_stand(case: Case) -> bool:
    seconds = tuning.current.silent_seconds
    return (
        case.holds_back
        and not case.silent
        and bool(case.read.rows_in)
        and case.longer(case.read.moved, seconds)
    )


def _times_stand_sentence(found: Found) -> str:
    heartbeat = found.read.heartbeat
    where = "" if heartbeat is None else f" at {found.at(heartbeat)}"
    return waited(found, f"which sends rows while its heartbeat stands still{where}")


def _missing(case: Case) -> bool:
    slowest = case.read.slowest
    silent = slowest is not None and case.longer(slowest.last, tuning.current.silent_seconds)
    return case.holds_back and silent and not case.silent


def _missing_sentence(found: Found) -> str:
    slowest = found.read.slowest
    assert slowest is not None
    who = (
        f"{slowest.column} {slowest.group}" if slowest.numbered else f"a group of sources by {slowest.column}"
    )
    others = slowest.groups - 1
    rest = "the other one sends" if others == 1 else f"{others:,} others send"
    since = found.at(slowest.last)
    return waited(found, f"of which {who} has been silent since {since} while {rest}; each is {bound(found)}")


def _missing_hint(found: Found) -> str:
    if found.read.latency is not None:
        return _silent_hint(found)
    value, name = patience(found), found.stream
    idle = (
        f'"idle": "{value}" to "sources" in bounds["{name}"]'
        if found.status.file is None
        else f'idle = "{value}" to sources under [streams.{name}]'
    )
    return f"Add {idle}, or {set_bound(found, 'latency', value)}."


def _add_latency(found: Found) -> str:
    if found.status.ticks_per_second is None:
        return f"Its next row releases the query, or a heartbeat that {found.stream} sends itself."
    return f"Add {set_bound(found, 'latency', patience(found))}. Its next row releases the query too."


def _unproven(case: Case) -> bool:
    return case.holds_back and case.silent and case.read.latency is None


def _silent_in_bounds(case: Case) -> bool:
    return case.holds_back and case.silent


def _silent_hint(found: Found) -> str:
    status, latency = found.status, found.read.latency or 0
    wanted = min(wait.wanted for wait in found.waits)
    shorter = length(min(latency, 5 * status.clock_per_second), status.clock_per_second)
    until = f"It goes on at {found.at(wanted + latency + 1)} at the latest"
    if latency <= 5 * status.clock_per_second:
        return f"{until}."
    return f"{until}. To wait less, set {set_bound(found, 'latency', shorter, 'in')}."


def _normal_sentence(found: Found) -> str:
    if not found.cases[0].holds_back:
        who, _, _ = subject(found)
        waits = "waits" if len(found.queries) == 1 else "wait"
        wanted = found.at(min(wait.wanted for wait in found.waits))
        return f"{who} {waits} for {wanted}, when the next results are due."
    return waited(found, f"which is {bound(found)}")


NEVER_CONNECTED = Cause(
    "never connected",
    Scope.STREAM,
    _unconnected,
    lambda found: waited(found, f"which has not sent a row yet{source(found)}"),
    lambda found: (
        "Check that its source exists, and that something sends to it."
        if found.read.latency is not None or not found.waits
        else f"Check its source. To go on without it, add {set_bound(found, 'latency', patience(found))}."
    ),
)

WRONG_CLOCK = Cause(
    "wrong clock",
    Scope.STREAM,
    lambda case: _rejects(case, guarded=True),
    lambda found: _rejected_sentence(found, ", because their times are too far ahead of the clock"),
    lambda found: f"Correct the clock of its sender, or raise guard under [streams.{found.stream}].",
)

ROWS_REJECTED = Cause(
    "rows rejected",
    Scope.STREAM,
    lambda case: _rejects(case, guarded=False),
    lambda found: _rejected_sentence(found, _first_reason(found)),
    lambda found: "Correct the input, or the schema of the stream.",
)

LATE_ROWS = Cause("late rows", Scope.STREAM, _late, _late_sentence, _late_hint)

BACKLOG = Cause("backlog", Scope.STREAM, _backlog, _backlog_sentence, _backlog_hint)

MISSING_SOURCE = Cause("missing source", Scope.STREAM, _missing, _missing_sentence, _missing_hint)

TIMES_STAND_STILL = Cause(
    "times stand still",
    Scope.STREAM,
    _times_stand,
    _times_stand_sentence,
    lambda found: "Correct the clock of its sender.",
)

BOUND_NOT_PROVEN = Cause(
    "bound not proven",
    Scope.STREAM,
    _unproven,
    lambda found: waited(found, f"{silent_since(found)} and {bound(found)}"),
    _add_latency,
)

SILENT_STREAM = Cause(
    "silent stream",
    Scope.STREAM,
    _silent_in_bounds,
    lambda found: waited(found, f"{silent_since(found)} and {bound(found)}"),
    _silent_hint,
)

NORMAL_WAIT = Cause("normal wait", Scope.STREAM, lambda case: bool(case.waits), _normal_sentence, normal=True)
