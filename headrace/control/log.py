"""The control log: one small file per command, in the directory `control` of the checkpoint.

    00000012.json      command 12
    00000012.refused   why it was refused when a run tried to apply it
    tables/….arrow     the rows of a table that a command reloads

Files are numbered from 1 without gaps, never change, and get their names when they are complete, so other
programs can read the directory as a stream of files. Each has a checksum. Two writers at once both succeed:
the second finds its number taken and uses the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from headrace import disk
from headrace.control.commands import Command, from_json, to_json
from headrace.errors import ControlError, HeadraceError
from headrace.pipeline.pipeline import Pipeline

FORMAT: Final = 1
DIRECTORY: Final = "control"
ROWS: Final = "tables"
"""The directory of the log with the rows of tables that were reloaded."""
_NAME: Final = re.compile(r"(\d{8,})\.json")


@dataclass(frozen=True)
class Entry:
    """A command in the log. `replaces` identifies what the pipeline file said when it was written.

    `refused` is the reason why it was not applied.
    """

    number: int
    command: Command
    written: str = ""
    replaces: str | None = None
    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON data, without the reason for a refusal."""
        body = {"number": self.number, "written": self.written, "command": to_json(self.command)}
        return body | ({} if self.replaces is None else {"replaces": self.replaces})

    @staticmethod
    def from_json(body: dict[str, Any], place: str = "") -> Entry:
        """The entry that `to_json` wrote."""
        command = from_json(body["command"], place)
        return Entry(body["number"], command, body["written"], body.get("replaces"))


class Log:
    """The control log in a directory, which is created by the first command."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def append(self, command: Command, replaces: str | None = None) -> Entry:
        """Write a command; it is durable, and has its number, when this returns.

        The command is not checked: `headrace.control.submit` checks it first, and knows what it `replaces`.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with self._saying("write"):
            disk.current.mkdir(self.path, private=True)
            while True:
                # The names before ours must survive a power failure if ours does.
                disk.current.sync(self.path)
                entry = Entry(self._last() + 1, command, now, replaces)
                if self._create(f"{entry.number:08d}.json", entry.to_json()):
                    return entry

    def _create(self, name: str, body: dict[str, Any]) -> bool:
        """Create a file under a name that does not exist yet; false if it does."""
        draft = self.path / f".{os.getpid()}-{uuid4().hex}.draft"
        text = json.dumps({"format": FORMAT, "crc": _crc_of(body), **body}) + "\n"
        with disk.current.open(draft, "wb", private=True) as file:
            file.write(text.encode())
            disk.current.flush(file)
        try:
            disk.current.link(draft, self.path / name)
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                disk.current.unlink(draft)
        disk.current.sync(self.path)
        return True

    def refuse(self, entry: Entry, error: HeadraceError) -> Entry:
        """Note that a command was not applied, and why; no later run applies it."""
        reason = f"[{error.code}] {error.message}"
        with self._saying("write"):
            self._create(f"{entry.number:08d}.refused", {"reason": reason})
        return replace(entry, refused=reason)

    def read(self, since: int = 0, until: int | None = None) -> list[Entry]:
        """The commands after number `since`, in order, up to `until` or the last; cheap if there are none."""
        if not self._exists(since + 1):
            return []
        with self._saying("read"):
            # A run must not commit the effect of a command that a power failure could take away.
            disk.current.sync(self.path)
            names = set(disk.current.names(self.path))
        found: list[Entry] = []
        number = since + 1
        while f"{number:08d}.json" in names and (until is None or number <= until):
            found.append(self._entry(number, names))
            number += 1
        return found

    # --- the rows of tables that are reloaded

    def keep(self, rows: bytes) -> str:
        """Keep the rows of a table, as Arrow data, for a command that is about to be written; their name."""
        name = f"{hashlib.blake2b(rows, digest_size=8).hexdigest()}-{uuid4().hex[:8]}"
        folder = self.path / ROWS
        with self._saying("write"):
            disk.current.mkdir(folder, private=True)
            draft = folder / f".{name}.draft"
            with disk.current.open(draft, "wb", private=True) as file:
                file.write(rows)
                disk.current.flush(file)
            disk.current.replace(draft, folder / f"{name}.arrow")
            disk.current.sync(folder)
        return name

    def kept(self, name: str) -> bytes:
        """The rows that were kept under a name."""
        path = self.path / ROWS / f"{name}.arrow"
        try:
            found = disk.current.read(path)
        except OSError as error:
            found, why = b"", f": {error.strerror or error}"
        else:
            why = " or damaged"
        if hashlib.blake2b(found, digest_size=8).hexdigest() != name.partition("-")[0]:
            raise ControlError(
                "HR-L014",
                f"the rows of a reloaded table are missing{why}",
                place=str(path),
                hint="restore the control directory from a copy, or reload the table again",
            )
        return found

    def forget(self, names: Iterable[str]) -> None:
        """Delete rows that no run needs any more."""
        with self._saying("write"):
            for name in names:
                disk.current.unlink(self.path / ROWS / f"{name}.arrow", missing_ok=True)

    def _exists(self, number: int) -> bool:
        """Whether there is a command with this number."""
        with self._saying("read"):
            return (self.path / f"{number:08d}.json").exists()

    def _last(self) -> int:
        """The number of the last command; 0 if there is none."""
        matches = (_NAME.fullmatch(name) for name in disk.current.names(self.path))
        return max((int(match[1]) for match in matches if match), default=0)

    def _entry(self, number: int, names: Iterable[str]) -> Entry:
        """The command with this number, after a check of its checksum."""
        name = f"{number:08d}.json"
        body = self._body(name)
        entry = Entry.from_json(body, str(self.path / name))
        refusal = f"{number:08d}.refused"
        if entry.number != number:
            raise self._damaged(name)
        return replace(entry, refused=self._body(refusal)["reason"]) if refusal in names else entry

    def _body(self, name: str) -> dict[str, Any]:
        """The content of a file of the log, after a check of format and checksum."""
        with self._saying("read"):
            data = disk.current.read(self.path / name)
        body = _checked(data, str(self.path / name))
        if body is None:
            raise self._damaged(name)
        return body

    def _damaged(self, name: str) -> ControlError:
        return ControlError(
            "HR-L002",
            f"the file {name} of the control log is damaged",
            place=str(self.path / name),
            hint="restore it from a copy; do not delete it, because later commands may depend on it",
        )

    def _saying(self, doing: str) -> AbstractContextManager[None]:
        """Turn an OSError into HR-L004."""
        hint = "check the permissions and the free space of the checkpoint directory"
        return disk.coded(ControlError, "HR-L004", f"{doing} the control log", self.path, hint)


def log_of(pipeline: Pipeline) -> Log:
    """The control log of a pipeline, which is in its checkpoint directory."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        raise ControlError(
            "HR-L001",
            "this pipeline has no checkpoint, so it has no control log",
            place=str(pipeline.file or pipeline.name),
            hint='set checkpoint = "state" under [pipeline]',
        )
    return Log(pipeline.path(checkpoint) / DIRECTORY)


def read_entry(text: str) -> Entry | None:
    """The command in the text of a file of the log; None if it is damaged."""
    body = _checked(text.encode(), "")
    return None if body is None else Entry.from_json(body)


def _checked(data: bytes, place: str) -> dict[str, Any] | None:
    """The content of a file; None if it is damaged, an error if it is of another version."""
    try:
        body: dict[str, Any] = json.loads(data)
        version, crc = body.pop("format"), body.pop("crc")
    except (ValueError, KeyError, AttributeError):
        return None
    if version != FORMAT:
        raise ControlError(
            "HR-L003",
            f"the command has format {version}, and this version of Headrace reads {FORMAT}",
            place=place,
            hint="use the version that wrote it",
        )
    return body if crc == _crc_of(body) else None


def _crc_of(body: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())
