"""A source that ticks each interval, however long or short; Spark's `rate` source ticks each second.

Spark runs it in a process of its own beside the driver, which needs nothing of the engine: nothing of it is
imported here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

MICROS: Final = "micros"
"""The option that says how often it ticks."""


class Timer(DataSource):
    """A row for each micro-batch with a tick: the instants of the tick before and of this one."""

    @classmethod
    def name(cls) -> str:
        return "headrace_timer"

    def schema(self) -> str:
        return "since bigint, until bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return _Ticks(int(self.options[MICROS]))


class _Span(InputPartition):
    """From one tick to the next."""

    def __init__(self, since: int, until: int) -> None:
        super().__init__(None)
        self.since, self.until = since, until


class _Ticks(DataSourceStreamReader):
    """An offset is the instant of a tick."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"at": _now()}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:
        now = _now()
        if self._last is None or now >= self._last + self._interval:
            self._last = now
        return {"at": self._last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        self._last = max(end["at"], self._last or end["at"])
        return [_Span(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        assert isinstance(partition, _Span)
        yield partition.since, partition.until


def _now() -> int:
    return time.time_ns() // 1000
