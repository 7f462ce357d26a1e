"""A file, or a directory of files that may grow, as a source: file after file, in the order of their names.

A position says which files were read to their end, and of each other one how far it was read and what it
looked like. So a restart goes on exactly there, whatever came, grew or was moved in between, and finds out if
what was read has changed.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headrace.connectors import disk
from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, Block, Position, Span, empty, shown
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
"""Errors that are as they are: to try again does not help. Any other is of the machine, and may pass."""

ACTIVE: Final = 64
"""Followed files whose marks are kept in the position itself: those that were read last."""
QUIET: Final = 3000
"""Looks at a directory after which a file that has not grown is no longer taken to be growing."""


class _Replaced(Exception):
    """Another file got the name between looking at it and opening it."""


def _silent(message: str) -> None:
    return None


@dataclass
class FilesSource:
    """All files that a path names: a file, a directory or a pattern.

    `follow`: new files, and new lines at the end of files, are rows to come, and the source has no end.
    Files whose names begin with `.` or `_` are not there yet. Files are called by their path from `root`;
    `finished` remembers those that were read; `say` hears what became of files.
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
        """Of files that were read in part, and of followed files that were read last; the newest last."""
        self._queue: list[str] = []
        self._open: tuple[str, Reader, int] | None = None
        self._listed = False
        self._span: Span | None = None
        """The block to read again as it was."""
        self._growing: dict[str, int] = {}
        self._looked = 0
        self._beside: set[str] = set()
        """Rotated files that the path does not name, and that may still be written to."""
        self._orphan: str | None = None
        """The file that is read to its end through the open handle: it has no name any more."""
        self._lost: list[Bad] = []
        self.ended = False

    @property
    def bounded(self) -> bool:
        return not self.follow

    @property
    def _grows(self) -> bool:
        return self.follow and self.how.name in GROWING

    # --- reading

    def read(self) -> Block | None:
        if self._span is not None:
            span, self._span = self._span, None
            return self._read_on(span["file"], stop=span["mark"][0])
        looked = self._listed and not self.follow
        while True:
            if self._lost:
                lost, self._lost = tuple(self._lost), []
                return Block(empty(self.schema), lost)
            if self._queue and self._is_replaced(self._queue[0]):
                self._queue = self._look()
            elif self._queue:
                try:
                    block = self._read_on(self._queue[0])
                except _Replaced:
                    continue
                if block is not None:
                    return block
                self._leave(self._queue.pop(0))
            elif looked:
                self.ended = not self.follow
                return None
            else:
                self._queue = self._look()
                self._listed = looked = True

    def _read_on(self, name: str, stop: Any = None) -> Block | None:
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
        """How far a file was read; it is the newest of those that are at hand."""
        if self._grows and self.finished.get(name) is not None:
            self._growing[name] = self._looked
        self._marks.pop(name, None)
        self._marks[name] = found

    def _known(self, name: str) -> Mark | None:
        return self._marks.get(name) or self.finished.get(name)

    def _unreadable(self, name: str, before: Mark | None, error: OSError) -> Block | None:
        """A file that cannot be read is one bad row; the files after it are read."""
        if before is not None and before.left:
            return None
        begun = before is not None and before.at is not None
        if error.errno not in OF_THE_FILE or (begun and error.errno != errno.ENOENT):
            raise unreadable(self._names.path(name), error) from error
        self._note(name, before or Mark(None, 0, 0, 0, 0, 0))
        self._marks[name] = replace(self._marks[name], left=True)
        path = str(self._names.path(name))
        return Block(empty(self.schema), (Bad(Code.UNREADABLE, f"cannot be read: {error}", path),))

    def _reader(self, name: str) -> Reader:
        """The file, open; it may be replaced at any moment before that, but not after it."""
        path = self._names.path(name)
        inode = 0 if name == self._orphan else path.stat().st_ino
        if self._open is None or self._open[0] != name or (inode and self._open[2] != inode):
            self.close()
            reader = READERS[self.how.name](path, self.schema, self.how)
            self._open = (name, reader, inode)
            if isinstance(reader, LinesReader) and os.fstat(reader.handle.fileno()).st_ino != inode:
                self.close()
                raise _Replaced
        return self._open[1]

    def _leave(self, name: str) -> None:
        """The file has nothing more for now; it is left for the next one."""
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
        stat = regular(self._names.path(name))
        return Mark(None, 0, 0, 0, 0 if stat is None else stat.st_ino, 0)

    def _retire(self) -> None:
        """Followed files that were not read for a while go to the log."""
        idle = len(self._marks) - ACTIVE - len(self._growing)
        keep = {*self._growing, *self._beside, *self._queue}
        old = [name for name, found in self._marks.items() if found.left and name not in keep]
        for name in old[: max(0, idle)]:
            self.finished.add(name, self._marks.pop(name))

    # --- looking for files

    def _look(self) -> list[str]:
        """The files that have something to read, in order."""
        self._looked += 1
        if self._growing and self._looked % QUIET == 0:
            self._growing = {n: at for n, at in self._growing.items() if at > self._looked - QUIET}
        found = self._list()
        changes = self._watch.changes(found, list(self._marks), follow=self.follow)
        orphan = self._apply(changes, found)
        if orphan is not None:
            return [orphan]
        older = {*changes.moved.values(), *self._beside}
        names = [name for name, seen in found.items() if self._has_more(name, seen)]
        first = sorted((name for name in names if name in older), key=lambda name: found[name].age)
        return [*first, *(name for name in names if name not in older)]

    def _list(self) -> dict[str, Seen]:
        root = Path(self.path)
        pattern = str(root / "*") if root.is_dir() else self.path
        paths = [Path(name) for name in glob.glob(pattern, recursive=True)]
        shown = [path for path in paths if not path.name.startswith((".", "_"))]
        files = [(path, stat) for path in shown if (stat := regular(path)) is not None]
        if not files and not self.follow and not root.exists():
            raise ConnectorError(
                "HR-C001",
                f"no file {self.path!r}",
                place=os.getcwd(),
                hint="give a file, a directory or a pattern; follow = true waits for files to come",
            )
        files.sort(key=ORDERS[self.order])
        listed = {self._names.of(path): Seen(path, stat) for path, stat in files}
        self._beside -= listed.keys()
        return self._rotated(self._beside) | listed

    def _rotated(self, names: set[str]) -> dict[str, Seen]:
        paths = {name: self._names.path(name) for name in sorted(names)}
        return {name: Seen(path, stat) for name, path in paths.items() if (stat := regular(path)) is not None}

    def _has_more(self, name: str, seen: Seen) -> bool:
        known = self._known(name)
        if known is None or not known.left:
            return True
        return self._grows and seen.stat.st_size > known.taken

    def _apply(self, changes: Changes, found: dict[str, Seen]) -> str | None:
        """Take note of what became of files; the file that is to be read to its end through its handle."""
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
            self.say(f"{name} was rotated while nobody looked: it is read from its beginning")
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
        """Whether the file that was called so is open here, and not the one that is now called so."""
        if self._open is None or self._open[0] != name or self.how.name not in GROWING:
            return False
        return seen is None or seen.stat.st_ino != self._open[2]

    def _begin(self, name: str) -> None:
        """Another file has this name now: it is read from its beginning."""
        if self._open is not None and self._open[0] == name:
            self.close()
        self._marks.pop(name, None)
        self._marks[name] = self._unread(name)

    def _end_orphan(self, name: str) -> None:
        """All whole lines of a file without a name were read."""
        assert self._open is not None
        known = self._marks[name]
        self._orphan = None
        reader = self._open[1]
        rest = reader.rest(known.at) if isinstance(reader, LinesReader) else b""
        if rest:
            self._lost.append(Bad(Code.CUT, "the file was replaced before its last line ended", shown(rest)))
        self.say(
            f"{name} was replaced: the old file was read to its end, the new one is read from its beginning"
        )
        self._begin(name)

    def _account(self, name: str, seen: Seen, size: int) -> None:
        """A file is not there any more, nor a copy of it: what is known to be missing is a bad row."""
        known = self._known(name)
        assert known is not None
        how = "was truncated" if seen.stat.st_ino == known.inode else "was replaced"
        missing = size - known.taken
        if not known.taken and missing <= 0:
            return
        self.say(f"{name} {how} after {known.taken} bytes of it had been read: it is read from its beginning")
        if missing > 0:
            reason = f"the file {how}, and {missing} bytes of it had not been read"
            self._lost.append(Bad(Code.UNREADABLE, reason, str(self._names.path(name))))

    def _say_moved(self, old: str, new: str, replaced: bool) -> None:
        if replaced:
            self.say(f"{old} was rotated: the rest of it is read from {new}, then {old} from its beginning")
        else:
            self.say(f"{old} is now called {new}: reading goes on where it was")

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
        """The block that was taken in part must be there as it was."""
        name = moved.get(span["file"], span["file"])
        after = replace(Mark.of_json(span["mark"]), left=False)
        again = self._found_again(name, after, moved.values()) or name
        moved[span["file"]] = again
        if again != name and name in self._marks:
            self._marks[again] = self._marks.pop(name)
        self._span = span | {"file": again}
        return str(span["file"])

    def _found_again(self, name: str, known: Mark, taken: Collection[str]) -> str | None:
        """What a file is called that was read in part; it must be there, with all that was read of it.

        None of one that was empty, and is not there any more.
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
            "is gone" if stat is None else f"has {stat.st_size} bytes" if stat.st_size < known.taken else ""
        )
        raise ConnectorError(
            "HR-C002",
            f"the file {gone}, and was read up to {known.at}"
            if gone
            else f"the file was changed in what was read of it, up to {known.at}",
            place=str(path),
            hint=f"put the file back, under its name or beside it as {path.name}.1; or delete the checkpoint "
            "and the outputs to start over",
        )

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None
