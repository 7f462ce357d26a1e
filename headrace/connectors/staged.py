"""A sink for targets with transactions: databases, lake tables, and functions that know what they have.

Rows of a commit are staged in a file. Once the checkpoint has decided the commit, they go to the target in
one transaction, together with the number of the commit. After a crash, `open` asks the target for the last
number that it has, and applies the staged rows if they are missing: each row gets there once.

    write … prepare ──► staged/NAME/00000012.arrow      durable, not visible
    checkpoint          {"run": "5f3c…", "number": 12}  from here on the commit counts
    publish         ──► target: rows + (run, 12)        one transaction
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.ipc as ipc

from headrace import disk, tuning
from headrace.connectors.contract import Commit
from headrace.connectors.sinks import Writer
from headrace.errors import ConnectorError
from headrace.schema import Schema

KEPT: Final = 2
"""How many staged commits stay on disk: as many as a checkpoint keeps."""
DONE: Final = ".done"
"""The ending of the rows of a commit that was applied."""


class Target(Protocol):
    """Where committed rows go. `run` names a sequence of commits; their numbers grow.

    Law: after `apply(run, n, rows)`, `last(run)` is n, and the rows are there; after a crash, both or
    neither.
    """

    @property
    def place(self) -> str:
        """What it is, for messages; without secrets."""
        ...

    def begin(self) -> None:
        """Raise an error if a run may not start with what is there; this call changes nothing."""
        ...

    def open(self, schema: Schema, run: str) -> None:
        """Connect, and create what is missing; note a run that is not known yet as commit 0."""
        ...

    def last(self, run: str) -> int | None:
        """The last commit of a run that it has; None if it cannot know."""
        ...

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        """Add the rows of a commit, and its number, in one transaction."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


@dataclass
class StagedSink:
    """Rows are staged until their commit is decided, in `folder`, or in memory if there are no checkpoints.

    A target that cannot know which commits it has may get the last one again after a crash, with the same
    rows and the same number.
    """

    target: Target
    folder: Path | None

    def __post_init__(self) -> None:
        self._schema: Schema = pa.schema([])
        self._run, self._number = "", 0
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._writer: Writer | None = None
        self._in_memory: pa.Table | None = None

    def begin(self) -> Commit:
        self.target.begin()
        return {"run": uuid.uuid4().hex, "number": 0, "staged": False}

    def open(self, schema: Schema, commit: Commit) -> None:
        self._schema, self._run, self._number = schema, commit["run"], commit["number"]
        self.target.open(schema, self._run)
        if self.folder is not None:
            with self._saying():
                disk.current.mkdir(self.folder, private=True)
                self._sweep(self._number)
        self._catch_up(commit)

    def _sweep(self, number: int) -> None:
        """Remove what is not part of the last commits up to this one."""
        assert self.folder is not None
        for name in disk.current.names(self.folder):
            if name.endswith(".draft") or not number - KEPT < int(Path(name).stem) <= number:
                disk.current.unlink(self.folder / name)

    def _catch_up(self, commit: Commit) -> None:
        """Apply the last commit if the target does not have it; an error if it has a later one."""
        had = self.target.last(self._run)
        if had is None and self._was_applied(commit["number"]):
            return
        if had is not None and had > commit["number"]:
            raise ConnectorError(
                "HR-C015",
                f"the target has commit {had}, but the checkpoint only {commit['number']}: an older "
                "checkpoint is used than the one that the target was written with",
                place=self.target.place,
                hint="restore the newest checkpoint; or start over with a new checkpoint and a new table",
            )
        if had is not None and had < commit["number"] - bool(commit["staged"]):
            raise ConnectorError(
                "HR-C011",
                f"commit {commit['number']} follows, but the target has only {had}: it lost commits",
                place=self.target.place,
                hint="restore the target, or start over with a new checkpoint and a new table",
            )
        if commit["staged"] and had != commit["number"]:
            self.publish(commit)

    def cut(self, commit: Commit) -> None:
        if commit["staged"] and not self._was_applied(commit["number"]):
            self.open(self._schema, commit)

    def write(self, data: pa.RecordBatch) -> None:
        self._held.append(data)
        self._rows += data.num_rows
        if self.folder is not None and self._rows >= tuning.current.row_group_rows:
            with self._saying():
                self._flush()

    def _flush(self) -> None:
        """Write the held rows to the staged file of the next commit."""
        assert self.folder is not None
        if self._writer is None:
            self._writer = Writer(self._draft(self._number + 1), "arrow", self._schema, private=True)
        self._writer.to.write_table(pa.Table.from_batches(self._held, self._schema).combine_chunks())
        self._held, self._rows = [], 0

    def _draft(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:08d}.draft"

    def _staged(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{number:08d}.arrow"

    def _was_applied(self, number: int) -> bool:
        """Whether this side has noted that a commit was applied."""
        return self.folder is not None and self._staged(number).with_suffix(DONE).exists()

    def prepare(self) -> Commit:
        if not self._rows and self._writer is None:
            return {"run": self._run, "number": self._number, "staged": False}
        if self.folder is None:
            self._in_memory = pa.Table.from_batches(self._held, self._schema)
            self._held, self._rows, self._number = [], 0, self._number + 1
        else:
            self._seal()
        return {"run": self._run, "number": self._number, "staged": True}

    def _seal(self) -> None:
        """Make the rows of the next commit durable, and give their file its name."""
        assert self.folder is not None
        with self._saying():
            if self._rows:
                self._flush()
            assert self._writer is not None
            self._writer.seal()
            self._writer = None
            self._number += 1
            disk.current.replace(self._draft(self._number), self._staged(self._number))
            disk.current.sync(self.folder)

    def publish(self, commit: Commit) -> None:
        if not commit["staged"]:
            return
        with self._rows_of(commit["number"]) as rows:
            self.target.apply(self._run, commit["number"], rows)
        self._in_memory = None
        if self.folder is not None:
            with self._saying():
                staged = self._staged(commit["number"])
                disk.current.replace(staged, staged.with_suffix(DONE))
                self._sweep(commit["number"])

    @contextmanager
    def _rows_of(self, number: int) -> Iterator[pa.Table]:
        """The rows of a staged commit."""
        if self.folder is None:
            assert self._in_memory is not None
            yield self._in_memory
            return
        try:
            with (
                self._saying(),
                disk.current.open(self._staged(number), "rb") as file,
                ipc.open_file(file) as rows,
            ):
                found = rows.read_all()
        except (pa.ArrowException, FileNotFoundError) as error:
            raise ConnectorError(
                "HR-C011",
                f"the rows of commit {number} were committed, but their file is missing or damaged",
                place=str(self._staged(number)),
                hint="restore the checkpoint directory from a copy, or start over with a new one",
            ) from error
        yield found

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        self.target.close()

    def _saying(self) -> AbstractContextManager[None]:
        """Turn file system errors into errors that name the folder."""
        assert self.folder is not None
        return disk.coded(ConnectorError, "HR-C012", "write", self.folder)
