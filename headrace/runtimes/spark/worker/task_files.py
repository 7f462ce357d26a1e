"""Results that tasks write where they read the rows: these rows pass no shuffle and no engine.

That needs a query whose results depend on one row each, in any order, and for which no row is too late. The
host still learns how many rows there were and their times, and it judges the rows that must be rejected.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.plan.nodes.core import Plan
from headrace.runtimes.spark.worker.preaggregate import chain_steps

if TYPE_CHECKING:
    from headrace.runtimes.spark.worker.partitioner import Sent


@dataclass(frozen=True)
class TaskFiles:
    """The Parquet files of a query, which reads `stream` row by row; `folder` is that of its results."""

    query: str
    stream: str
    plan: Plan
    folder: str
    codec: str

    def opened(self, batch: int, task: int) -> TaskFile:
        """The file of a task in a micro-batch. No other attempt has a file of that name."""
        name = f"part-{task:05d}-{uuid.uuid4().hex}.parquet"
        return TaskFile(self, draft_of(Path(self.folder), batch) / name)


def draft_of(folder: Path, batch: int) -> Path:
    """The hidden folder for the files of a micro-batch until all of them are complete."""
    return folder / f".batch={batch}.draft"


class TaskFile:
    """One file, which begins with its first row: a task without results leaves none."""

    def __init__(self, spec: TaskFiles, path: Path) -> None:
        self._spec, self._path = spec, path
        self._steps = chain_steps(spec.plan)
        self._writer: pq.ParquetWriter | None = None
        self.read = 0
        """The rows of the stream that were taken."""
        self.rows = 0
        """The results that were written."""

    @property
    def name(self) -> str:
        return self._path.name

    def __enter__(self) -> TaskFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The file is complete."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def take(self, sent: Sent) -> Sent:
        """Write the results of the rows that are sound; returns the others, which the host rejects."""
        assert sent.sound is not None
        if sent.sound.all():
            self._write(sent.rows)
            return _kept(sent, np.zeros(len(sent.sound), np.bool_))
        self._write(sent.rows.filter(pa.array(sent.sound)))
        return _kept(sent, ~sent.sound)

    def _write(self, rows: pa.RecordBatch) -> None:
        self.read += rows.num_rows
        for step in self._steps:
            rows, _ = step(rows)
        if not rows.num_rows:
            return
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, self._spec.plan.schema, compression=self._spec.codec)
        self._writer.write_batch(rows)
        self.rows += rows.num_rows


def _kept(sent: Sent, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Sent:
    """What is sent, with these rows only."""
    assert sent.times is not None
    return replace(
        sent,
        rows=sent.rows.filter(pa.array(kept)) if kept.any() else sent.rows.slice(0, 0),
        times=sent.times[kept],
        clocks=sent.clocks[kept],
        sound=None if sent.sound is None else sent.sound[kept],
        cells=None if sent.cells is None else sent.cells[kept],
    )
