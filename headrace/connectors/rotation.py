"""What became of files since they were last looked at: renamed, rotated, copied and truncated, or replaced.

A file is the one that was read if it has the bytes that were read of it. If it has not, those may be beside
it under another name: the file of the same inode (rename, then a new file), or a copy (copy, then truncate).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
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
        """Equal in two looks if nothing was changed between them; a time of 0 is not known surely."""
        return self.stat.st_ino, self.stat.st_size, modified(self.stat)


@dataclass(frozen=True)
class Changes:
    """Files that are now called otherwise, by their old names; and names under which another file is now.

    Of the latter, how large the file was that was called so when it was last looked at.
    """

    moved: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Watch:
    """Compares each look at files with what is `known` of them; `by_inode` is the name of a finished file."""

    names: Names
    known: Callable[[str], Mark | None]
    by_inode: Callable[[int], str | None]
    _looks: dict[str, Look] = field(default_factory=dict)

    def changes(self, found: Mapping[str, Seen], active: Iterable[str], *, follow: bool) -> Changes:
        """What is different; `active` are the files that were read last, or in part."""
        replaced = [name for name in found if self._is_other(name, found[name])] if follow else []
        gone = [name for name in active if name not in found and (name in self._looks or not follow)]
        moved: dict[str, str] = {}
        for name in (*replaced, *gone) if follow else ():
            other = self.elsewhere(name, {*moved.values()})
            if other is not None:
                moved[name] = other
        absent = {*replaced, *gone} - moved.keys()
        for name, seen in found.items():
            if self.known(name) is None and name not in moved.values():
                old = self._renamed(seen, absent)
                if old is not None:
                    moved[old] = name
                    absent.discard(old)
        sizes = {name: self._looks[name][1] if name in self._looks else 0 for name in replaced}
        self._looks = {name: seen.look for name, seen in found.items()} if follow else {}
        return Changes(moved, sizes)

    def _is_other(self, name: str, seen: Seen) -> bool:
        known = self.known(name)
        if known is None or (seen.look == self._looks.get(name) and seen.look[2]):
            return False
        return not known.holds(seen.path, seen.stat)

    def elsewhere(self, name: str, taken: set[str] | None = None) -> str | None:
        """Under which name beside it the file is that was called `name`."""
        known = self.known(name)
        if known is None or not known.taken:
            return None
        for path, stat in siblings(self.names.path(name), known.inode):
            other = self.names.of(path)
            if (
                other not in (taken or ())
                and _may_hold(known, path, stat)
                and not self._is_itself(other, path, stat)
            ):
                return other
        return None

    def _is_itself(self, name: str, path: Path, stat: os.stat_result) -> bool:
        """Whether a file is known under its name, and still what it was."""
        known = self.known(name)
        return known is not None and known.taken > 0 and known.holds(path, stat)

    def _renamed(self, seen: Seen, absent: set[str]) -> str | None:
        """What a file was called before that has been read under another name, which it has no longer."""
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
        known = self.known(name)
        return 0 if known is None else known.inode


def _may_hold(known: Mark, path: Path, stat: os.stat_result) -> bool:
    """Whether a file beside another has what was read of that; not if it cannot be read."""
    try:
        return known.holds(path, stat)
    except ConnectorError:
        return False
