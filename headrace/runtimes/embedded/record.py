"""Recorded runs, for replay: every step with its instant, its rows and its bad input.

    pipeline.json            the pipeline, with a checksum
    steps-000012.jsonl       the input of each instant, up to a commit; the last line has the checksums
    rows-000012-NAME.arrow   the rows of a stream in those steps

A replay makes the same steps and the same commits, so its outputs are identical byte for byte.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace import disk
from headrace.connectors.contract import Bad, Commit, empty
from headrace.connectors.sinks import saying
from headrace.control import Entry
from headrace.disk import Summed
from headrace.errors import DurabilityError
from headrace.pipeline import Pipeline
from headrace.pipeline.load import from_tables
from headrace.pipeline.lookups import to_bytes
from headrace.runtimes.embedded.feeds import Step
from headrace.runtimes.embedded.inflow import Piece
from headrace.schema import Schema

FORMAT: Final = 2
TIME = "\0time"
"""The column with the times of the recorded rows."""


class Recorder:
    """Records steps. Like the run's own outputs, steps after the last commit are lost in a crash."""

    def __init__(self, path: Path, pipeline: Pipeline) -> None:
        self.path, self.pipeline = path, pipeline
        self._number = 0
        self._steps: Summed | None = None
        self._rows: dict[str, _Rows] = {}

    def open(self, commit: Commit | None) -> None:
        """Continue from a commit; None starts a new recording and removes an old one."""
        with saying(self.path):
            self._open(commit)

    def _open(self, commit: Commit | None) -> None:
        """Open the directory at a commit: delete what was written after it, then write the pipeline."""
        disk.current.mkdir(self.path, private=True)
        self._number = 0 if commit is None else commit["next"]
        if commit is not None:
            self.publish(commit)
        for name in disk.current.names(self.path):
            match = re.fullmatch(r"(?:steps-(\d{6,})\.jsonl|rows-(\d{6,})-.*\.arrow)(\.draft)?", name)
            if match and (match[3] or int(match[1] or match[2]) >= self._number):
                disk.current.unlink(self.path / name)
        tables = json.loads(json.dumps(self.pipeline.tables()))
        for name, table in self.pipeline.spec.lookups.items():
            if table.reload or table.path is None:
                tables["tables"][name] = self._table(name, bool(table.reload))
        written = {"format": FORMAT, "crc": _crc_of(tables), "pipeline": tables}
        with disk.current.open(self.path / "pipeline.json", "wb", private=True) as file:
            file.write(json.dumps(written, indent=2).encode())
            disk.current.flush(file)

    def _table(self, name: str, changes: bool) -> dict[str, Any]:
        """Keep the first rows of a table that a replay could not read again; returns its entry."""
        rows = self.pipeline.catalog.tables[name.lower()].data
        assert rows is not None
        path = self.path / f"table-{name}.arrow"
        if not path.exists():
            with disk.current.open(path, "wb", private=True) as file:
                file.write(to_bytes(rows))
                disk.current.flush(file)
        return {"path": str(path.resolve()), "reload": changes}

    def write(self, step: Step) -> None:
        """Record a step."""
        with saying(self.path):
            self._write(step)

    def _write(self, step: Step) -> None:
        """Write a step as one line, and its rows to the file of each stream."""
        steps = self._opened()
        pieces = [self._piece(piece) for piece in step.pieces]
        line = {"now": step.now, "pieces": pieces, "ends": list(step.ends), "read": dict(step.read)}
        if step.commands:
            line["commands"] = [entry.to_json() for entry in step.commands]
        steps.write(json.dumps(line).encode() + b"\n")

    def _opened(self) -> Summed:
        """The file of steps, created at the first use after a commit."""
        if self._steps is None:
            draft = self._draft(f"steps-{self._number:06d}.jsonl")
            self._steps = Summed(disk.current.open(draft, "wb", private=True))
        return self._steps

    def _piece(self, piece: Piece) -> list[Any]:
        """Write the rows of a piece, and return the rest of it for the line of the step."""
        if len(piece):
            timed = piece.data if piece.times is None else piece.data.append_column(TIME, piece.times)
            if piece.stream not in self._rows:
                name = self._draft(f"rows-{self._number:06d}-{piece.stream}.arrow")
                self._rows[piece.stream] = _Rows(name, timed.schema)
            self._rows[piece.stream].to.write_batch(timed)
        bad = [[str(b.code), b.reason, b.raw] for b in piece.bad]
        return [piece.stream, len(piece), bad, *([piece.shed] if piece.shed else [])]

    def _draft(self, name: str) -> Path:
        return self.path / f"{name}.draft"

    def prepare(self) -> Commit:
        """Seal the steps since the last commit. A commit without steps is replayed too."""
        with saying(self.path):
            return self._seal()

    def _seal(self) -> Commit:
        """End the open files with their checksums and flush them; publish gives them their final names."""
        steps = self._opened()
        rows = {f"rows-{self._number:06d}-{stream}.arrow": each.seal() for stream, each in self._rows.items()}
        sums = json.dumps({"crc": steps.crc, "rows": rows}).encode()
        steps.write(b"%08x %s\n" % (zlib.crc32(sums), sums))
        disk.current.flush(steps.file)
        steps.close()
        names = [f"steps-{self._number:06d}.jsonl", *rows]
        disk.current.sync(self.path)
        self._steps, self._rows = None, {}
        self._number += 1
        return {"next": self._number, "pending": names}

    def publish(self, commit: Commit) -> None:
        """The commit is decided: give its files their final names."""
        with saying(self.path):
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


class _Rows:
    """A new Arrow file; rows written `to` it are durable after `seal`."""

    def __init__(self, path: Path, schema: Schema) -> None:
        self._sink = Summed(disk.current.open(path, "wb", private=True))
        try:
            self._file = pa.PythonFile(self._sink, "w")
            self.to = ipc.new_file(self._file, schema)
        except BaseException:
            self._sink.close()
            raise

    def seal(self) -> list[int]:
        """Finish the file and make it durable; returns its size and checksum."""
        self.to.close()
        disk.current.flush(self._sink.file)
        self._sink.close()
        return [self._sink.size, self._sink.crc]

    def close(self) -> None:
        """Close the file; if it is not sealed, nobody will read it."""
        if self._sink.closed:
            return
        with suppress(OSError, pa.ArrowException):
            self.to.close()
        with suppress(OSError):
            self._sink.close()


class Recorded:
    """A recorded run: its pipeline, and its steps by commit. A damaged file is never used, even in part."""

    def __init__(self, path: str | Path, functions: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        try:
            data = disk.current.read(self.path / "pipeline.json")
        except OSError as error:
            raise DurabilityError(
                "HR-D010",
                f"there is no recorded run here: {error.strerror or error}",
                place=str(self.path),
                hint='to record a run, set record = "…" under [pipeline]',
            ) from None
        self.pipeline = from_tables(self._tables(data), root=self.path, functions=functions)

    def _tables(self, data: bytes) -> Any:
        """The tables of the recorded pipeline, after a check of format and checksum."""
        with self._whole("pipeline.json"):
            written = json.loads(data)
            if "format" not in written and "crc" not in written:
                raise DurabilityError(
                    "HR-D003",
                    f"the recorded run has format 1, and this version of Headrace reads {FORMAT}",
                    place=str(self.path),
                    hint="replay it with the version that recorded it, or record the run again",
                )
            if written["format"] != FORMAT or written["crc"] != _crc_of(written["pipeline"]):
                raise ValueError
            return written["pipeline"]

    def commits(self) -> Iterator[list[Step]]:
        """The steps up to each commit."""
        names = [name for name in disk.current.names(self.path) if re.fullmatch(r"steps-\d+\.jsonl", name)]
        for number in range(len(names)):
            yield list(self._steps(f"{number:06d}"))

    def _steps(self, number: str) -> Iterator[Step]:
        """The steps of one numbered file, with their rows."""
        lines, sums = self._lines(f"steps-{number}.jsonl")
        rows: dict[str, Iterator[pa.RecordBatch]] = {}
        for line in lines:
            step = json.loads(line)
            for stream, count, *_ in step["pieces"]:
                if count and stream not in rows:
                    name = f"rows-{number}-{stream}.arrow"
                    rows[stream] = self._batches(name, *sums[name])
            pieces = tuple(self._piece(rows, *each) for each in step["pieces"])
            commands = tuple(Entry.from_json(each) for each in step.get("commands", ()))
            yield Step(step["now"], pieces, tuple(step["ends"]), step["read"], commands)

    def _lines(self, name: str) -> tuple[list[bytes], dict[str, list[int]]]:
        """The lines of steps, and the checksums of the rows that belong to them."""
        with self._whole(name):
            data = disk.current.read(self.path / name)
            *lines, last = data.splitlines(keepends=True)
            crc, _, text = last.removesuffix(b"\n").partition(b" ")
            if int(crc, 16) != zlib.crc32(text):
                raise ValueError
            sums = json.loads(text)
            if sums["crc"] != zlib.crc32(data[: len(data) - len(last)]):
                raise ValueError
            return lines, sums["rows"]

    @contextmanager
    def _whole(self, name: str) -> Iterator[None]:
        """Turns any failure to read a file into a coded error."""
        try:
            yield
        except (OSError, ValueError, TypeError, LookupError, AttributeError, pa.ArrowException) as error:
            raise DurabilityError(
                "HR-D011",
                f"the recorded run is damaged: {name} has changed since it was written",
                place=str(self.path / name),
                hint="restore the recorded run from a copy, or record it again",
            ) from error

    def _piece(
        self,
        rows: dict[str, Iterator[pa.RecordBatch]],
        stream: str,
        count: int,
        bad: list[Any],
        shed: int = 0,
    ) -> Piece:
        """A piece from its entry in a line of steps, and the next batch of its stream."""
        schema = self.pipeline.streams[stream].schema
        found = tuple(Bad(*each) for each in bad)
        if not count:
            return Piece(stream, empty(schema), None, found, shed)
        return replace(_untimed(stream, next(rows[stream]), schema, found), shed=shed)

    def _batches(self, name: str, size: int, crc: int) -> Iterator[pa.RecordBatch]:
        """The batches of a file of rows, after a check of its size and checksum."""
        with self._whole(name):
            source = pa.memory_map(str(self.path / name))
            data = source.read_buffer()
            if data.size != size or zlib.crc32(data) != crc:
                raise ValueError
            reader = ipc.open_file(data)
        for i in range(reader.num_record_batches):
            yield reader.get_batch(i)


def _crc_of(tables: Any) -> int:
    return zlib.crc32(json.dumps(tables, sort_keys=True).encode())


def _untimed(stream: str, batch: pa.RecordBatch, schema: Schema, bad: tuple[Bad, ...]) -> Piece:
    """Split a recorded batch into the rows and their times."""
    at = batch.schema.get_field_index(TIME)
    times = batch.column(at) if at >= 0 else None
    plain = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
    return Piece(stream, plain, times, bad)
