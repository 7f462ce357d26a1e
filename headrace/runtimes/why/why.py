"""`why` as an object: text on a terminal, a table in a notebook, plain data for scripts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from time import time
from typing import Any

from headrace.drawing.explanation import PAGE
from headrace.drawing.svg import escape
from headrace.runtimes.status import RUNNING, Status
from headrace.runtimes.why.found import Found
from headrace.runtimes.why.table import causes_of
from headrace.runtimes.words import html_table

NOTHING = "Nothing is waiting: every row that arrived has been processed as far as it can be."


@dataclass(frozen=True)
class Why:
    """Why the queries of a run wait: the most serious cause first, normal waits last."""

    status: Status
    age: float = 0.0

    @staticmethod
    def of(status: Status, now: float | None = None) -> Why:
        """The causes in a status; `now` is the system's clock in seconds."""
        ended = status.state != RUNNING
        return Why(status, 0.0 if ended else max(0.0, (time() if now is None else now) - status.written))

    @cached_property
    def found(self) -> tuple[Found, ...]:
        """The causes."""
        return tuple(causes_of(self.status, self.age))

    @property
    def sentences(self) -> list[str]:
        """A sentence for each cause; normal waits are left out if something else is wrong."""
        wrong = [str(each) for each in self.found if not each.cause.normal]
        said = wrong or [str(each) for each in self.found] or [NOTHING]
        return said + _notes(self.status)

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return {
            "pipeline": self.status.pipeline,
            "runtime": self.status.runtime,
            "state": self.status.state,
            "now": self.status.now,
            "batch": self.status.batch,
            "age_seconds": self.age,
            "causes": [each.plain() for each in self.found],
            "notes": _notes(self.status),
        }

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        rows = [
            (each.cause.name, ", ".join(each.queries), each.stream, each.sentence, each.hint)
            for each in self.found
        ]
        head = ("cause", "queries", "stream", "what happens", "what helps")
        body = html_table(head, rows) if rows else f"<p>{NOTHING}</p>"
        notes = "".join(f"<p>{escape(each)}</p>" for each in _notes(self.status))
        return f'<div style="{PAGE}">{body}{notes}</div>'


def _notes(status: Status) -> list[str]:
    """What else happens: paused queries, rows that are shed, joins and conditions in another order."""
    file = status.file or "FILE"
    paused = [
        f"Query {name} is paused and holds {each.held:,} answers. "
        f"To go on: headrace query resume {file} {name}"
        for name, each in status.queries.items()
        if each.paused
    ]
    shed = [
        f"Stream {name} dropped {each.rows_shed:,} of {each.rows_in:,} rows "
        f"({each.rows_shed / each.rows_in:.1%}): they arrived faster than they could be processed, and load "
        "shedding (shed) is on."
        for name, each in status.streams.items()
        if each.rows_shed
    ]
    joins = [
        f"Query {query} runs its joins in another order than planned: {order}."
        for query, order in status.orders.items()
    ]
    tried = [
        f"{name} tests its conditions in the order {order}; percentages are the rows that pass."
        for name, order in status.conditions.items()
    ]
    return paused + shed + joins + tried
