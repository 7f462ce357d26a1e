"""What happens in a run, as records of Python's `logging`: a text for people, fields for machines.

The records are made from the statuses of a run, so both runtimes have the same. Each has a dict `headrace`
with `event`, `pipeline`, `runtime` and what the event is about. Nothing is made where no handler is set.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from headrace.engine.reasons import LATE
from headrace.runtimes.status import FAILED, Status
from headrace.runtimes.why import Why
from headrace.runtimes.words import length

LOG: Final = logging.getLogger("headrace.run")
MORE: Final = 10
"""A reason is told again when it has so many times as many rows as the last time."""
Record = tuple[int, str, dict[str, Any]]


class RunRecords:
    """Compares each status of a run with the one before, and logs what is new."""

    def __init__(self) -> None:
        self._before: Status | None = None
        self._rows: dict[tuple[str, str, str], int] = {}
        self._waits: dict[tuple[str, str, tuple[str, ...]], str] = {}

    def see(self, status: Status) -> None:
        """Log what is new in a status."""
        if not LOG.hasHandlers():
            return
        for level, message, fields in [record for make in EVENTS for record in make(self, status)]:
            _log(status, level, message, fields)
        self._before = status

    def _states(self, status: Status) -> Iterator[Record]:
        if self._before is None or self._before.state != status.state:
            yield _state(status)

    def _reasons(self, status: Status) -> Iterator[Record]:
        for each in status.reasons:
            key = (each.kind, each.stream, each.code)
            if each.rows < MORE * self._rows.get(key, 0) or not each.rows:
                continue
            self._rows[key] = each.rows
            late = f"late by up to {length(each.worst, status.ticks_per_second)}"
            why = late if each.kind == LATE else f"rejected: {each.code} {each.first}"
            fields = {"stream": each.stream, "rows": each.rows, "code": each.code, "first": each.first}
            yield (
                logging.WARNING,
                f"{each.rows:,} row{'' if each.rows == 1 else 's'} of {each.stream} {why}",
                {"event": each.kind, **fields},
            )

    def _causes(self, status: Status) -> Iterator[Record]:
        found = [each for each in Why.of(status, status.written).found if not each.cause.normal]
        now = {
            (each.cause.name, each.stream, tuple(case.query for case in each.cases)): str(each)
            for each in found
            if status.state != FAILED
        }
        for (cause, stream, queries), sentence in now.items():
            if (cause, stream, queries) not in self._waits:
                fields = {"event": "waiting", "cause": cause, "stream": stream, "queries": list(queries)}
                yield logging.WARNING, sentence, fields
        for cause, stream, queries in self._waits.keys() - now.keys():
            fields = {"event": "resolved", "cause": cause, "stream": stream, "queries": list(queries)}
            yield logging.INFO, f"no longer: {cause} {stream}".rstrip(), fields
        self._waits = now

    def _messages(self, status: Status) -> Iterator[Record]:
        known = self._before.messages if self._before else ()
        for each in status.messages[len(known) :]:
            yield logging.INFO, each, {"event": "note"}

    def _commits(self, status: Status) -> Iterator[Record]:
        if self._before is not None and status.checkpoints > self._before.checkpoints:
            fields = {"event": "checkpoint", "number": status.checkpoints, "bytes": status.checkpoint_bytes}
            yield logging.DEBUG, f"checkpoint {status.checkpoints}", fields


EVENTS: Final[tuple[Callable[[RunRecords, Status], Iterator[Record]], ...]] = (
    RunRecords._states,
    RunRecords._reasons,
    RunRecords._causes,
    RunRecords._messages,
    RunRecords._commits,
)
"""What is looked for in each status, in this order."""


def ended(status: Status) -> None:
    """Log how a run has ended, if nobody has followed it to its end."""
    if LOG.hasHandlers():
        _log(status, *_state(status))


def telling(on_progress: Callable[[Status], object] | None) -> Callable[[Status], object] | None:
    """The callback for progress, which also logs; as it was if nobody listens to the log."""
    if not LOG.hasHandlers():
        return on_progress
    records = RunRecords()

    def told(status: Status) -> None:
        records.see(status)
        if on_progress is not None:
            on_progress(status)

    return told


def _state(status: Status) -> Record:
    level = logging.ERROR if status.state == FAILED else logging.INFO
    words = f"is {status.state}: {status.error}" if status.error else f"is {status.state}"
    return level, words, {"event": "state", "state": status.state, "error": status.error}


def _log(status: Status, level: int, message: str, fields: dict[str, Any]) -> None:
    told = {**fields, "pipeline": status.pipeline, "runtime": status.runtime}
    LOG.log(level, "%s: %s", status.pipeline, message, extra={"headrace": told})


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON: `at`, `level`, `logger`, `message`, and the fields of Headrace."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        known = {"at": at.replace("+00:00", "Z"), "level": record.levelname, "logger": record.name}
        fields = getattr(record, "headrace", {})
        if record.exc_info:
            fields = {**fields, "exception": self.formatException(record.exc_info)}
        return json.dumps({**known, "message": record.getMessage(), **fields}, default=str)
