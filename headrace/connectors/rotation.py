"""How files changed since the last look: renamed, rotated, copied and truncated, or replaced.

A file is the one that was read if it still has the bytes that were read. If not, these may be in the same
directory under another name: the file of the same inode (a rename), or a copy (copy, then truncate).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connectors.identity import Mark, Names, modified, regular, siblings
from headrace.errors import ConnectorError

Look = tuple[int, int, int]


@dataclass(frozen=True)
class Seen:
    """A file in a directory."""

    path: Path
    stat: os.stat_result

    @property
    def look(self) -> Look:
        """Equal in two looks if nothing changed between them; a modification time of 0 is not reliable."""
        return self.stat.st_ino, self.stat.st_size, modified(self.stat)

    @property
    def age(self) -> tuple[int, str]:
        """Sort key that puts rotated files in the order in which they were written."""
        return self.stat.st_mtime_ns, str(self.path)


@dataclass(frozen=True)
class Changes:
    """Files that have a new name, by old name; and names that now belong to another file.

    For the latter, the size of the former file when it was last looked at. `between` are files that got a
    name and were rotated again between two looks.
    """

    moved: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, int] = field(default_factory=dict)
    between: tuple[str, ...] = ()


@dataclass
class Watch:
    """Compares each look at the files with what is `known` about them; `by_inode` finds a finished file."""

    names: Names
    known: Callable[[str], Mark | None]
    by_inode: Callable[[int], str | None]
    _looks: dict[str, Look] = field(default_factory=dict)

    def changes(self, found: Mapping[str, Seen], active: Iterable[str], *, follow: bool) -> Changes:
        """The changes since the last look; `active` are the files that were read most recently or in part."""
        replaced = [name for name in found if self.is_other(name, found[name])] if follow else []
        gone = [name for name in active if name not in found and (name in self._looks or not follow)]
        moved: dict[str, str] = {}
        for name in (*replaced, *gone) if follow else ():
            other = self.elsewhere(name, moved.values())
            if other is not None:
                moved[name] = other
        between = tuple(each for old, new in moved.items() for each in self.between(old, new))
        absent = {*replaced, *gone} - moved.keys()
        for name, seen in found.items():
            if self.known(name) is None and name not in moved.values():
                old = self._renamed(seen, absent)
                if old is not None:
                    moved[old] = name
                    absent.discard(old)
        sizes = {name: self._looks[name][1] if name in self._looks else 0 for name in replaced}
        return Changes(moved, sizes, tuple(name for name in between if name not in moved.values()))

    def saw(self, found: Mapping[str, Seen]) -> None:
        """Remember what the files looked like, to compare with the next look."""
        self._looks = {name: seen.look for name, seen in found.items()}

    def inode(self, name: str) -> int | None:
        """The inode of the file that had this name at the last look."""
        return self._looks[name][0] if name in self._looks else None

    def between(self, old: str, new: str) -> list[str]:
        """Files that were rotated after the one now called `new`: for s.3, those called s.2 and s.1."""
        base, _, number = new.rpartition(".")
        if not number.isdecimal() or re.sub(r"\.\d+$", "", old) != base:
            return []
        names = [f"{base}.{i}" for i in range(int(number) - 1, 0, -1)]
        seen = [(name, regular(self.names.path(name))) for name in names]
        return [
            name
            for name, stat in seen
            if stat is not None and not self._is_itself(name, self.names.path(name), stat)
        ]

    def is_other(self, name: str, seen: Seen) -> bool:
        """Whether this name now belongs to a different file from the one that was read."""
        known = self.known(name)
        if known is None or (seen.look == self._looks.get(name) and seen.look[2]):
            return False
        if not known.taken:
            return known.inode not in (0, seen.stat.st_ino)  # it was empty when it was looked at
        return not known.holds(seen.path, seen.stat)

    def elsewhere(self, name: str, taken: Collection[str] = (), known: Mark | None = None) -> str | None:
        """The new name, in the same directory, of the file that was `name`; not one of `taken`."""
        known = known or self.known(name)
        if known is None:
            return None
        for path, stat in siblings(self.names.path(name), known.inode):
            other = self.names.of(path)
            if (
                other not in taken
                and _may_be(known, self.names.path(name), path, stat)
                and not self._is_itself(other, path, stat)
            ):
                return other
        return None

    def _is_itself(self, name: str, path: Path, stat: os.stat_result) -> bool:
        """Whether a file is known under its name and has not changed identity."""
        known = self.known(name)
        return known is not None and known.taken > 0 and known.holds(path, stat)

    def _renamed(self, seen: Seen, absent: set[str]) -> str | None:
        """The old name of a file that was read under a name that no longer exists."""
        candidates = [name for name in absent if self._inode(name) == seen.stat.st_ino]
        if (finished := self.by_inode(seen.stat.st_ino)) is not None and finished not in candidates:
            candidates.append(finished)
        for name in candidates:
            known = self.known(name)
            there = name not in absent and regular(self.names.path(name)) is not None
            if known is None or not known.taken or there:
                continue
            changed = {known.modified, modified(seen.stat)}
            same = seen.stat.st_size > known.taken or len(changed) == 1 or 0 in changed
            if same and known.holds(seen.path, seen.stat):
                return name
        return None

    def _inode(self, name: str) -> int:
        """The recorded inode of a file; 0 if it is not known."""
        known = self.known(name)
        return 0 if known is None else known.inode


def _may_be(known: Mark, before: Path, path: Path, stat: os.stat_result) -> bool:
    """Whether a file contains what was read of another file in its directory; false if it is unreadable.

    If nothing was read of that file, it is recognised by its inode and by a name with the same beginning.
    """
    if not known.taken:
        return stat.st_ino == known.inode and path.name.startswith(before.stem)
    try:
        return known.holds(path, stat)
    except ConnectorError:
        return False
