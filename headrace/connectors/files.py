"""A file, or a directory of files that may grow, as a source. Files are read by name or modification time.

A position lists the files that were read to the end and, for each other file, how far it was read and what it
looked like. So a restart continues exactly there, even if files were added, grew or were moved in the
meantime, and notices if data that was already read has changed.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headrace import disk, tuning
from headrace.connectors.contract import Bad, Block, Code, Position, Span, empty, shown
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import GROWING, READERS, Format, LinesReader, Reader
from headrace.connectors.identity import Mark, Names, mark, regular, unreadable
from headrace.connectors.rotation import Changes, Seen, Watch
from headrace.errors import ConnectorError
from headrace.schema import Schema

ORDERS: Final[dict[str, Callable[[tuple[Path, os.stat_result]], Any]]] = {
    "name": lambda found: str(found[0]),
    "modified": lambda found: (found[1].st_mtime_ns, str(found[0])),
}
OF_THE_FILE: Final = frozenset(
    (None, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
)
"""Permanent errors of one file; other errors come from the machine and may be temporary."""


class _Replaced(Exception):
    """The file was replaced between looking at it and opening it."""


def _silent(message: str) -> None:
    return None


@dataclass
class FilesSource:
    """All files that match a path: a file, a directory or a pattern.

    With `follow`, the source waits for new files and for new lines at the end of files, and never ends.
    Files whose names begin with `.` or `_` are ignored. Files are named by their path relative to `root`;
    `finished` records those that were read to the end; `say` receives messages about moved and lost
    files.
    """

    path: str
    schema: Schema
    how: Format
    follow: bool = False
    order: str = "name"
    root: Path | None = None
    finished: FinishedFiles = field(default_factory=FinishedFiles)
    say: Callable[[str], None] = _silent

    def __post_init__(self) -> None:
        self._names = Names(self.root)
        self._watch = Watch(self._names, self._known, self.finished.by_inode)
        self._marks: dict[str, Mark] = {}
        """Marks of partly read files and of the followed files read most recently; the newest comes last."""
        self._queue: list[str] = []
        self._open: tuple[str, Reader, int] | None = None
        self._listed = False
        self._span: Span | None = None
        """The block to read again, if a run stopped in the middle of it."""
        self._growing: dict[str, int] = {}
        self._looked = 0
        self._beside: set[str] = set()
        """Rotated files that the path does not match, but that may still be written to."""
        self._orphan: str | None = None
        """The file that is read to its end through the open handle, because it no longer has a name."""
        self._lost: list[Bad] = []
        self.ended = False

    @property
    def bounded(self) -> bool:
        return not self.follow

    @property
    def _grows(self) -> bool:
        """Whether lines may still be appended to a file that was read to its end."""
        return self.follow and self.how.name in GROWING

    # --- reading

    def read(self) -> Block | None:
        if self._span is not None:
            span, self._span = self._span, None
            return self._read_on(span["file"], stop=span["mark"][0])
        looked, fresh = self._listed and not self.follow, False
        while True:
            if self._lost:
                lost, self._lost = tuple(self._lost), []
                return Block(empty(self.schema), lost)
            if self._queue and not fresh and self._is_replaced(self._queue[0]):
                self._queue, fresh = self._look(), True
            elif self._queue:
                try:
                    block = self._read_on(self._queue[0])
                except _Replaced:
                    self._queue, fresh = self._look(), True
                    continue
                if block is not None:
                    return block
                self._leave(self._queue.pop(0))
            elif looked:
                self.ended = not self.follow
                return None
            else:
                self._queue = self._look()
                self._listed = looked = fresh = True

    def _read_on(self, name: str, stop: Any = None) -> Block | None:
        """Read the next block of one file, or the block up to `stop` again.

        None if there is nothing to read.
        """
        before = self._known(name)
        if before is not None and before.left and not self._grows:
            return None
        at = None if before is None else before.at
        try:
            reader = self._reader(name)
            found = reader.read(at, complete=not self.follow, stop=stop)
            if found is None:
                return None
            block, place = found
            after = self._mark(name, place, before, reader)
        except OSError as error:
            return self._unreadable(name, before, error)
        self._note(name, after)
        return replace(block, span={"file": name, "from": at, "mark": after.json})

    def _mark(self, name: str, at: Any, before: Mark | None, reader: Reader) -> Mark:
        """Record how far a file was read and what identifies it."""
        if isinstance(reader, LinesReader):
            # A finished file may end without a newline. What is appended to that last line later is not read.
            return mark(reader.handle, at, int(at), before, ended=not self.follow)
        with disk.current.open(self._names.path(name), "rb") as file:
            return mark(file, at, None, before)

    def _is_replaced(self, name: str) -> bool:
        """Whether a followed file that is read in blocks was rotated, cut or removed between two of them."""
        known = self._known(name)
        if not self._grows or name == self._orphan or known is None:
            return False
        path = self._names.path(name)
        stat = regular(path)
        return stat is None or self._watch.is_other(name, Seen(path, stat))

    def _note(self, name: str, found: Mark) -> None:
        """Record how far a file was read, and make it the newest of the active files."""
        if self._grows and self.finished.get(name) is not None:
            self._growing[name] = self._looked
        self._marks.pop(name, None)
        self._marks[name] = found

    def _known(self, name: str) -> Mark | None:
        """The mark of a file that was read, in part or to its end."""
        return self._marks.get(name) or self.finished.get(name)

    def _unreadable(self, name: str, before: Mark | None, error: OSError) -> Block | None:
        """Report an unreadable file as one bad row, and continue with the next file."""
        if before is not None and before.left:
            return None
        begun = before is not None and before.at is not None
        if error.errno not in OF_THE_FILE or (begun and error.errno != errno.ENOENT):
            raise unreadable(self._names.path(name), error) from error
        self._note(name, before or Mark(None, 0, 0, 0, 0, 0))
        self._marks[name] = replace(self._marks[name], left=True)
        path = str(self._names.path(name))
        return Block(empty(self.schema), (Bad(Code.UNREADABLE, f"the file cannot be read: {error}", path),))

    def _reader(self, name: str) -> Reader:
        """Open the file. It can be replaced at any moment before that, but not after."""
        path = self._names.path(name)
        inode = 0 if name == self._orphan else path.stat().st_ino
        if self._open is None or self._open[0] != name or (inode and self._open[2] != inode):
            self.close()
            reader = READERS[self.how.name](path, self.schema, self.how)
            self._open = (name, reader, inode)
            expected = self._watch.inode(name) or inode
            if isinstance(reader, LinesReader) and os.fstat(reader.handle.fileno()).st_ino != expected:
                self.close()
                raise _Replaced
        return self._open[1]

    def _leave(self, name: str) -> None:
        """Leave a file that has nothing more to read for now."""
        if name == self._orphan:
            return self._end_orphan(name)
        found = replace(self._known(name) or self._unread(name), left=True)
        if self._grows:
            self._marks[name] = found
            self._retire()
        else:
            self._marks.pop(name, None)
            self.finished.add(name, found)
        if self._queue or not self.follow:
            self.close()

    def _unread(self, name: str) -> Mark:
        """The mark of a file of which nothing was read yet."""
        stat = regular(self._names.path(name))
        return Mark(None, 0, 0, 0, 0 if stat is None else stat.st_ino, 0)

    def _retire(self) -> None:
        """Move followed files that were not read for a while to the log of finished files."""
        idle = len(self._marks) - tuning.current.followed_files - len(self._growing)
        keep = {*self._growing, *self._beside, *self._queue}
        old = [name for name, found in self._marks.items() if found.left and name not in keep]
        for name in old[: max(0, idle)]:
            self.finished.add(name, self._marks.pop(name))

    # --- looking for files

    def _look(self) -> list[str]:
        """The files that have something to read, in order."""
        self._looked += 1
        quiet = tuning.current.quiet_looks
        if self._growing and self._looked % quiet == 0:
            self._growing = {n: at for n, at in self._growing.items() if at > self._looked - quiet}
        found = self._list()
        changes = self._watch.changes(found, list(self._marks), follow=self.follow)
        orphan = self._apply(changes, found)
        if self.follow:
            self._watch.saw(found)
        if orphan is not None:
            return [orphan]
        older = {*changes.moved.values(), *self._beside}
        names = [name for name, seen in found.items() if self._has_more(name, seen)]
        first = sorted((name for name in names if name in older), key=lambda name: found[name].age)
        return [*first, *(name for name in names if name not in older)]

    def _list(self) -> dict[str, Seen]:
        """List the files that exist now, in reading order, and the rotated files that are still watched."""
        root = Path(self.path)
        pattern = str(root / "*") if root.is_dir() else self.path
        paths = [Path(name) for name in glob.glob(pattern, recursive=True)]
        shown = [path for path in paths if not path.name.startswith((".", "_"))]
        files = [(path, stat) for path in shown if (stat := regular(path)) is not None]
        if not files and not self.follow and not root.exists():
            raise ConnectorError(
                "HR-C001",
                f"no file matches {self.path!r}",
                place=os.getcwd(),
                hint="check the path, or set follow = true to wait for files",
            )
        files.sort(key=ORDERS[self.order])
        listed = {self._names.of(path): Seen(path, stat) for path, stat in files}
        self._beside -= listed.keys()
        return self._rotated(self._beside) | listed

    def _rotated(self, names: set[str]) -> dict[str, Seen]:
        """Those of the rotated files that still exist."""
        paths = {name: self._names.path(name) for name in sorted(names)}
        return {name: Seen(path, stat) for name, path in paths.items() if (stat := regular(path)) is not None}

    def _has_more(self, name: str, seen: Seen) -> bool:
        """Whether a file has data that was not read yet."""
        known = self._known(name)
        if known is None or not known.left:
            return True
        return self._grows and seen.stat.st_size > known.taken

    def _apply(self, changes: Changes, found: dict[str, Seen]) -> str | None:
        """Apply the changes to the marks. Returns the file to read to its end through the open handle."""
        gone = [name for name in self._marks if name not in found]
        for old in (name for name in (*changes.replaced, *gone) if name not in changes.moved):
            if self._is_held(old, found.get(old)):
                self._orphan = old
                return old
        marks = {new: self._known(old) for old, new in changes.moved.items()}
        for old, new in changes.moved.items():
            self._marks.pop(old, None)
            self._say_moved(old, new, old in changes.replaced)
        for name in changes.replaced:
            if name not in changes.moved:
                self._account(name, found[name], changes.replaced[name])
            self._begin(name)
        for old in changes.moved.keys() - marks.keys():
            if self.finished.get(old) is not None and old not in changes.replaced:
                self._marks[old] = replace(self._unread(old), left=True)
        for name in changes.between:
            self.say(f"{name} was rotated while the pipeline was not reading: it is read from its beginning")
            self._begin(name)
            self._beside.add(name)
        for new, each in marks.items():
            assert each is not None
            self._marks[new] = each
            if new not in found:
                self._beside.add(new)
        found |= self._rotated(self._beside - found.keys())
        return None

    def _is_held(self, name: str, seen: Seen | None) -> bool:
        """Whether the file that had this name is still open here, while another one has the name now."""
        if self._open is None or self._open[0] != name or self.how.name not in GROWING:
            return False
        return seen is None or seen.stat.st_ino != self._open[2]

    def _begin(self, name: str) -> None:
        """Another file has this name now: read it from its beginning."""
        if self._open is not None and self._open[0] == name:
            self.close()
        self._marks.pop(name, None)
        self._marks[name] = self._unread(name)

    def _end_orphan(self, name: str) -> None:
        """Finish a file without a name, once all its complete lines were read."""
        assert self._open is not None
        known = self._marks[name]
        self._orphan = None
        reader = self._open[1]
        rest = reader.rest(known.at) if isinstance(reader, LinesReader) else b""
        if rest:
            self._lost.append(
                Bad(Code.CUT, "the file was replaced before its last line was complete", shown(rest))
            )
        self.say(
            f"{name} was replaced: the old file was read to its end, the new one is read from its beginning"
        )
        self._begin(name)

    def _account(self, name: str, seen: Seen, size: int) -> None:
        """Report the missing bytes of a file as a bad row, if neither the file nor a copy of it exists."""
        known = self._known(name)
        assert known is not None
        how = "was truncated" if seen.stat.st_ino == known.inode else "was replaced"
        missing = size - known.taken
        if not known.taken and missing <= 0:
            return
        self.say(f"{name} {how} after {known.taken} bytes were read: it is read from its beginning")
        if missing > 0:
            reason = f"the file {how} before its last {missing} bytes were read"
            self._lost.append(Bad(Code.UNREADABLE, reason, str(self._names.path(name))))

    def _say_moved(self, old: str, new: str, replaced: bool) -> None:
        """Report that a file was renamed or rotated."""
        if replaced:
            self.say(f"{old} was rotated: the rest of it is read from {new}, then {old} from its beginning")
        else:
            self.say(f"{old} was renamed to {new}: reading continues there")

    # --- positions

    def position(self) -> Position:
        reading = self._queue[0] if self._queue and self._queue[0] in self._marks else None
        marks = {name: found.json for name, found in self._marks.items()}
        return {"log": self.finished.position(), "files": marks, "in": reading}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self.close()
        self.finished.restore(position["log"])
        self._marks = {name: Mark.of_json(found) for name, found in position["files"].items()}
        self._queue, self._listed, self.ended = [], False, False
        self._orphan, self._lost, self._growing = None, [], {}
        moved: dict[str, str] = {}
        for name, found in sorted(self._marks.items(), key=lambda each: not each[1].taken):
            again = self._found_again(name, found, moved.values())
            if again is not None:
                moved[name] = again
        between = {each for old, new in moved.items() for each in self._watch.between(old, new)}
        self._marks = {moved[name]: found for name, found in self._marks.items() if name in moved}
        for name in between - self._marks.keys():
            self._begin(name)
        reading, self._span = position["in"], None
        if span is not None:
            reading = self._check_span(span, moved)
        if reading is not None:
            self._queue = [moved.get(reading, reading)]
        self._beside = {name for name in self._marks if self._names.path(name).exists()}

    def _check_span(self, span: Span, moved: dict[str, str]) -> str:
        """Check that a partly processed block has not changed."""
        name = moved.get(span["file"], span["file"])
        after = replace(Mark.of_json(span["mark"]), left=False)
        again = self._found_again(name, after, moved.values()) or name
        moved[span["file"]] = again
        if again != name and name in self._marks:
            self._marks[again] = self._marks.pop(name)
        self._span = span | {"file": again}
        return str(span["file"])

    def _found_again(self, name: str, known: Mark, taken: Collection[str]) -> str | None:
        """The current name of a partly read file, with all the data that was read of it.

        None if the file was empty and no longer exists.
        """
        path = self._names.path(name)
        stat = regular(path)
        if stat is not None and known.holds(path, stat) and (known.taken or known.inode in (0, stat.st_ino)):
            return name
        other = self._watch.elsewhere(name, taken, known)
        if other is not None:
            self._say_moved(name, other, stat is not None)
            return other
        if not known.taken:
            return None
        if stat is None and known.left:
            return name
        gone = (
            "no longer exists"
            if stat is None
            else f"has only {stat.st_size} bytes"
            if stat.st_size < known.taken
            else ""
        )
        raise ConnectorError(
            "HR-C002",
            f"the file {gone}, but it was read up to {known.at}"
            if gone
            else f"the part of the file that was already read, up to {known.at}, has changed",
            place=str(path),
            hint=f"restore the file under its name, or as {path.name}.1 in the same directory; "
            "or delete the checkpoint and the outputs to start over",
        )

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
