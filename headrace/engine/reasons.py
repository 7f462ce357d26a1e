"""Why rows were set apart: how many for each reason, with the first of them in words.

A reason often names a value, so reasons that differ only in quoted values and numbers count as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headrace.time.punctuate import Late, Rejected

LATE, REJECTED = "late", "rejected"
MOST: Final = 8
"""Reasons that are told apart on one stream; rows for any other count together."""

_VALUES = re.compile(r"""'[^']*'|"[^"]*"|[-+]?\d[\w.:+-]*""")


@dataclass(frozen=True)
class Reason:
    """Rows of a stream that were late or rejected for one reason.

    `first` is the reason given for the first of them, `worst` the most ticks by which one of them was late.
    """

    kind: str
    stream: str
    rows: int
    code: str = ""
    first: str = ""
    worst: int = 0

    def __str__(self) -> str:
        why = (
            f"late by up to {self.worst:,} ticks"
            if self.kind == LATE
            else f"rejected: {self.code} {self.first}"
        )
        return f"{self.rows:,} of {self.stream} {why}"


def _count(rows: pa.RecordBatch) -> int:
    return int(rows.num_rows)


class Reasons:
    """Counts rows by reason, in a bounded number of groups."""

    def __init__(self, count: Callable[[pa.RecordBatch], int] = _count) -> None:
        self._count = count
        self._found: dict[tuple[str, str, str, str], Reason] = {}

    def add(self, late: Iterable[Late], rejected: Iterable[Rejected]) -> None:
        """Count rows that an engine has set apart. Rows that were admitted are not."""
        for one in late:
            lost = ~one.admitted
            if lost.any():
                rows = self._count(one.rows.filter(pa.array(lost)))
                self.merge(Reason(LATE, one.stream, rows, worst=int(one.lateness[lost].max())))
        for each in rejected:
            self.merge(Reason(REJECTED, each.stream, len(each), str(each.code), each.reason))

    def merge(self, reason: Reason) -> None:
        """Count what was counted elsewhere."""
        key = (reason.kind, reason.stream, reason.code, _VALUES.sub("…", reason.first))
        known = self._found.get(key)
        if known is None and self._full(reason):
            key = (reason.kind, reason.stream, "", "")
            reason = replace(reason, code="", first="other reasons")
            known = self._found.get(key)
        if known is not None:
            reason = replace(known, rows=known.rows + reason.rows, worst=max(known.worst, reason.worst))
        self._found[key] = reason

    def _full(self, reason: Reason) -> bool:
        return sum(key[:2] == (reason.kind, reason.stream) for key in self._found) >= MOST

    def all(self) -> tuple[Reason, ...]:
        """Every reason, the most frequent first."""
        return tuple(sorted(self._found.values(), key=lambda each: -each.rows))

    def state(self) -> list[dict[str, Any]]:
        """As plain data."""
        return [asdict(each) for each in self._found.values()]

    def restore(self, state: Iterable[dict[str, Any]]) -> None:
        """Go on counting from what `state` gave."""
        self._found.clear()
        for each in state:
            self.merge(Reason(**each))


def merged(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Reasons that were counted apart, counted together."""
    together = Reasons()
    for each in reasons:
        together.merge(each)
    return together.all()
