"""Sessions: aggregates over rows of a group that follow each other closely."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.plan.nodes.core import Aggregate
from headrace.schema import Schema


@dataclass(frozen=True)
class SessionAggregate(Aggregate):
    """`Aggregate` over a stream, one row for each session of each group.

    Two rows of a group are in one session if their times are at most `gap` apart, as in Spark's
    session_window and in Flink (both include exactly `gap`). window_start is the time of the first row,
    window_end that of the last plus `gap`. The result is valid in [window_end − 1, window_end): at that tick
    the session is reported, once. `bounds` names the columns with window_start and window_end, appended after
    the aggregates. With a `partition`, some of the keys, sessions consist of rows that are equal in these,
    and each group has one row for each session with its rows.
    """

    gap: int
    bounds: tuple[str, str] | None = None
    partition: tuple[str, ...] | None = None

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The columns that define sessions."""
        return self.keys if self.partition is None else self.partition

    @property
    def schema(self) -> Schema:
        ends = [pa.field(name, pa.int64()) for name in self.bounds or ()]
        return pa.schema([*super().schema, *ends])

    @property
    def is_relation(self) -> bool:
        return True


@dataclass(frozen=True)
class MergingSessions(SessionAggregate):
    """The same over rows in any order: a row belongs to any session that no heartbeat has closed yet."""
