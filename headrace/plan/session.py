"""Sessions: rows of a group that follow each other closely, aggregated."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.nodes import Aggregate
from headrace.schema import Schema


@dataclass(frozen=True)
class SessionAggregate(Aggregate):
    """`Aggregate` over a stream, one row for each session of each group.

    Two rows of a group belong together if their times are at most `gap` apart, as in Spark's session_window
    and in Flink (exactly `gap` apart is together in both). window_start is the time of the first row,
    window_end that of the last plus `gap`. The answer is valid in [window_end − 1, window_end): at that tick
    the session is reported, once. `bounds` names the columns that show the window, appended after the
    aggregates. With a `partition`, which is some of the keys, sessions are of the rows that are equal in it,
    and each group has one row of those that it takes part in.
    """

    gap: int
    bounds: tuple[str, str] | None = None
    partition: tuple[str, ...] | None = None

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The columns that sessions are made by."""
        return self.keys if self.partition is None else self.partition

    @property
    def schema(self) -> Schema:
        ends = [pa.field(name, pa.int64()) for name in self.bounds or ()]
        return pa.schema([*super().schema, *ends])

    @property
    def is_relation(self) -> bool:
        return True


@dataclass(frozen=True)
class LooseSessions(SessionAggregate):
    """The same over rows in any order: a row belongs to any session that no heartbeat has closed yet."""
