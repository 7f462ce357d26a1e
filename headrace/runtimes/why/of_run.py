"""Causes in the run as a whole: it has ended, stands still, or has too little memory."""

from __future__ import annotations

from typing import Final

from headrace import tuning
from headrace.runtimes.status import FAILED, FINISHED, KILLED, RUNNING, STARTING, STOPPED
from headrace.runtimes.why.found import Case, Cause, Found, Scope
from headrace.runtimes.words import MICROS, lasting, listed, size, time_of_day

TOO_SMALL: Final = "HR-M001"
"""The code of an error: the state does not fit into the budget."""


def _lost_sentence(found: Found) -> str:
    status, last = found.status, found.status.lost[-1]
    when = time_of_day(int(last.at * MICROS), MICROS, int(status.written * MICROS))
    why = f": {last.reason.splitlines()[0].rstrip('. ')}" if last.reason else ""
    others = len(status.lost) - 1
    more = f" {others} more before it." if others else ""
    left = {0: "No executor is left", 1: "1 is left"}.get(last.left, f"{last.left} are left")
    again = "its tasks run again, which takes longer"
    return f"Executor {last.name} was lost at {when}{why}.{more} {left}; {again}."


def _stalled(case: Case) -> bool:
    usual = max(tuning.current.stalled_seconds, 3 * case.status.span)
    due = case.status.ticking or case.status.runtime == "embedded"
    return case.status.state == RUNNING and due and not case.status.writing and case.age > usual


def _stalled_sentence(found: Found) -> str:
    status, age = found.status, lasting(found.age)
    if status.runtime == "embedded":
        return f"The run has not finished a step for {age}: a source or a sink does not return."
    usual = lasting(status.span)
    return f"No micro-batch has ended for {age}; the one before took {usual}: an executor is lost or stuck."


def _stalled_hint(found: Found) -> str:
    if found.status.runtime == "embedded":
        return "Look at the log of the run, and at what its sources and sinks wait for."
    return "Look at the tasks that run or fail in Spark's UI, and at the executors that are left."


def _clock_stands(case: Case) -> bool:
    status = case.status
    stood = status.written - status.clock_moved
    return status.clock == "system" and status.state == RUNNING and stood > tuning.current.silent_seconds


def _nobody(case: Case) -> bool:
    streams = case.status.streams.values()
    return bool(streams) and not any(stream.rows_in for stream in streams) and case.status.state == RUNNING


def _nobody_sentence(found: Found) -> str:
    status = found.status
    reads = [f"{name} ({each.source})" if each.source else name for name, each in status.streams.items()]
    waited = lasting(status.elapsed)
    return f"The run has waited {waited} for its first row: no stream has sent one. It reads {listed(reads)}."


def _starting_sentence(found: Found) -> str:
    if found.status.runtime == "embedded":
        return "The run is starting."
    return "The job is starting: its first micro-batch has not ended yet. It takes longer than later ones."


def _over_budget(case: Case) -> bool:
    status = case.status
    least = [each for each in status.quality.values() if each.value <= each.least < each.most]
    shrunk = bool(least) and len(least) == len(status.quality)
    full = status.budget is not None and status.bytes > status.budget
    return status.budget is not None and (full or shrunk or status.spilled_bytes > 0)


def _budget_sentence(found: Found) -> str:
    status = found.status
    words = [f"The memory budget of {size(status.budget or 0)} is too small: state has {size(status.bytes)}"]
    if status.spilled_bytes:
        words.append(f"{size(status.spilled_bytes)} more are on disk, which is slower")
    if status.quality and all(each.value <= each.least for each in status.quality.values()):
        words.append("every window that may shrink has its smallest size")
    return f"{', '.join(words)}."


def _budget_hint(found: Found) -> str:
    if found.status.file is None:
        return "Raise memory= in SparkOptions, or allow smaller windows."
    return (
        "Raise budget under [memory], or allow smaller windows, or run: "
        f'headrace control {found.status.file} budget "{size(2 * (found.status.budget or 0))}"'
    )


RUN_FINISHED = Cause(
    "finished",
    Scope.RUN,
    lambda case: case.status.state == FINISHED,
    lambda found: "The run is finished: every stream has ended, and nothing is waiting.",
    normal=True,
    alone=True,
)

FAILED_ON_BUDGET = Cause(
    "budget too small",
    Scope.RUN,
    lambda case: case.status.state == FAILED and TOO_SMALL in case.status.error,
    lambda found: f"The run failed: {found.status.error}",
    alone=True,
)

RUN_FAILED = Cause(
    "failed",
    Scope.RUN,
    lambda case: case.status.state == FAILED,
    lambda found: f"The run failed: {found.status.error}",
    lambda found: "Committed output is safe; run it again to continue.",
    alone=True,
)

RUN_KILLED = Cause(
    "killed",
    Scope.RUN,
    lambda case: case.status.state == KILLED,
    lambda found: "The run was killed; this is the last status that it wrote.",
    lambda found: "Run it again to continue.",
)

RUN_STOPPED = Cause(
    "stopped",
    Scope.RUN,
    lambda case: case.status.state == STOPPED,
    lambda found: "The run is stopped; this is its last status.",
    lambda found: "Run it again to continue.",
)

RUN_STARTING = Cause(
    "starting",
    Scope.RUN,
    lambda case: case.status.state == STARTING,
    _starting_sentence,
    normal=True,
    alone=True,
)

EXECUTOR_LOST = Cause(
    "executor lost",
    Scope.RUN,
    lambda case: bool(case.status.lost) and case.status.state == RUNNING,
    _lost_sentence,
    lambda found: "Look at its log and its memory, and whether Spark may start another one.",
)

STALLED = Cause("stalled", Scope.RUN, _stalled, _stalled_sentence, _stalled_hint)

CLOCK_STANDS_STILL = Cause(
    "clock stands still",
    Scope.RUN,
    _clock_stands,
    lambda found: f"The clock of the run stands still at {found.at(found.status.now)}: no latency passes.",
    lambda found: "Correct the clock of this machine.",
)

NOBODY_CONNECTED = Cause(
    "never connected",
    Scope.RUN,
    _nobody,
    _nobody_sentence,
    lambda found: "Check that the sources exist, and that something sends to them.",
    alone=True,
)

BUDGET_TOO_SMALL = Cause("budget too small", Scope.RUN, _over_budget, _budget_sentence, _budget_hint)
