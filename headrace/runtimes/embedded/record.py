"""A run written down, so that it can be run again: every step with its instant, its rows and its bad input.

    pipeline.json            the pipeline
    steps-000012.jsonl       what came at each instant, up to a commit
    rows-000012-NAME.arrow   the rows of a stream in those steps

A replay makes the same steps and the same commits, so its outputs are equal byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace.connectors import disk
from headrace.connectors.contract import Bad, Commit, empty
from headrace.connectors.sinks import Writer, saying
from headrace.errors import DurabilityError
from headrace.pipeline import Pipeline
from headrace.pipeline.load import from_tables
from headrace.runtimes.embedded.feeds import Step
from headrace.runtimes.embedded.inflow import Piece
from headrace.schema import Schema

TIME = "\0time"
"""The column in which the recorded rows keep their times."""


class Recorder:
    """Writes steps down; what a commit has not sealed is gone after a crash, as the run's own outputs are."""

    def __init__(self, path: Path, pipeline: Pipeline) -> None:
        self.path, self.pipeline = path, pipeline
        self._number = 0
        self._steps: BinaryIO | None = None
        self._rows: dict[str, Writer] = {}

    def open(self, commit: Commit | None) -> None:
        """Go on from a commit; None: from nothing, and what was recorded here before is removed."""
        disk.current.mkdir(self.path)
        self._number = 0 if commit is None else commit["next"]
        if commit is not None:
            self.publish(commit)
        for name in disk.current.names(self.path):
            match = re.fullmatch(r"(?:steps-(\d{6,})\.jsonl|rows-(\d{6,})-.*\.arrow)(\.draft)?", name)
            if match and (match[3] or int(match[1] or match[2]) >= self._number):
                disk.current.unlink(self.path / name)
        with disk.current.open(self.path / "pipeline.json", "wb") as file:
            file.write(json.dumps(self.pipeline.tables(), indent=2).encode())
            disk.current.flush(file)

    def write(self, step: Step) -> None:
        """Write a step down."""
        with saying(self.path):
            self._write(step)

    def _write(self, step: Step) -> None:
        if self._steps is None:
            self._steps = disk.current.open(self._draft(f"steps-{self._number:06d}.jsonl"), "wb")
        pieces = [self._piece(piece) for piece in step.pieces]
        line = {"now": step.now, "pieces": pieces, "ends": list(step.ends), "read": dict(step.read)}
        self._steps.write(json.dumps(line).encode() + b"\n")

    def _piece(self, piece: Piece) -> list[Any]:
        if len(piece):
            timed = piece.data if piece.times is None else piece.data.append_column(TIME, piece.times)
            if piece.stream not in self._rows:
                name = self._draft(f"rows-{self._number:06d}-{piece.stream}.arrow")
                self._rows[piece.stream] = Writer(name, "arrow", timed.schema)
            self._rows[piece.stream].to.write_batch(timed)
        bad = [[str(b.code), b.reason, b.raw] for b in piece.bad]
        return [piece.stream, len(piece), bad, *([piece.shed] if piece.shed else [])]

    def _draft(self, name: str) -> Path:
        return self.path / f"{name}.draft"

    def prepare(self) -> Commit:
        """Seal what was written since the last commit. A commit with no step is a step of the replay too."""
        with saying(self.path):
            return self._seal()

    def _seal(self) -> Commit:
        if self._steps is None:
            self._steps = disk.current.open(self._draft(f"steps-{self._number:06d}.jsonl"), "wb")
        disk.current.flush(self._steps)
        self._steps.close()
        names = [f"steps-{self._number:06d}.jsonl"]
        for stream, writer in self._rows.items():
            writer.seal()
            names.append(f"rows-{self._number:06d}-{stream}.arrow")
        self._steps, self._rows = None, {}
        self._number += 1
        return {"next": self._number, "pending": names}

    def publish(self, commit: Commit) -> None:
        """The commit was decided."""
        for name in commit["pending"]:
            if self._draft(name).exists():
                disk.current.replace(self._draft(name), self.path / name)
        disk.current.sync(self.path)

    def close(self) -> None:
        with suppress(OSError):
            if self._steps is not None:
                self._steps.close()
        for writer in self._rows.values():
            writer.close()
        self._steps, self._rows = None, {}


class Recorded:
    """A recorded run: its pipeline, and its steps commit by commit."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            tables = json.loads(disk.current.read(self.path / "pipeline.json"))
        except (OSError, ValueError) as error:
            raise DurabilityError(
                "HR-D010",
                f"no recorded run: {getattr(error, 'strerror', None) or error}",
                place=str(self.path),
                hint='record = "…" under [pipeline] records one',
            ) from None
        self.pipeline = from_tables(tables, root=self.path)

    def commits(self) -> Iterator[list[Step]]:
        """The steps up to each commit."""
        for path in sorted(self.path.glob("steps-*.jsonl")):
            yield list(self._steps(path, path.name[6:-6]))

    def _steps(self, path: Path, number: str) -> Iterator[Step]:
        rows: dict[str, Iterator[pa.RecordBatch]] = {}
        with disk.current.open(path, "rb") as lines:
            for line in lines:
                step = json.loads(line)
                pieces = tuple(self._piece(number, rows, *each) for each in step["pieces"])
                yield Step(step["now"], pieces, tuple(step["ends"]), step["read"])

    def _piece(
        self,
        number: str,
        rows: dict[str, Iterator[pa.RecordBatch]],
        stream: str,
        count: int,
        bad: list[Any],
        shed: int = 0,
    ) -> Piece:
        schema = self.pipeline.streams[stream].schema
        found = tuple(Bad(*each) for each in bad)
        if not count:
            return Piece(stream, empty(schema), None, found, shed)
        if stream not in rows:
            rows[stream] = self._batches(self.path / f"rows-{number}-{stream}.arrow")
        return replace(_untimed(stream, next(rows[stream]), schema, found), shed=shed)

    def _batches(self, path: Path) -> Iterator[pa.RecordBatch]:
        reader = ipc.open_file(pa.memory_map(str(path)))
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def _untimed(stream: str, batch: pa.RecordBatch, schema: Schema, bad: tuple[Bad, ...]) -> Piece:
    at = batch.schema.get_field_index(TIME)
    times = batch.column(at) if at >= 0 else None
    plain = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
    return Piece(stream, plain, times, bad)
