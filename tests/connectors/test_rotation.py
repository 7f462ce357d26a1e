"""Followed files that are truncated, rotated or replaced: every row is read once, and it is said."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk, tuning
from headrace.connectors.contract import Bad
from headrace.connectors.files import FilesSource
from headrace.connectors.finished import FinishedFiles
from headrace.connectors.formats import Format
from headrace.errors import HeadraceError

SCHEMA = pa.schema([("k", pa.int64())])


def lines(begin: int, end: int) -> str:
    return "".join(f'{{"k": {k}}}\n' for k in range(begin, end))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rotating")


class Tail:
    """A followed file, what was read of it and what was said."""

    def __init__(self, path: Path, pattern: str = "s.jsonl") -> None:
        self.path, self.said, self.bad = path, list[str](), list[Bad]()
        self.keys: list[int] = []
        log = FinishedFiles(path.parent / ".log", "s")
        where = str(path.parent / pattern)
        self.source = FilesSource(
            where, SCHEMA, Format("json"), True, "name", path.parent, log, self.said.append
        )

    def read(self, looks: int = 3) -> None:
        for _ in range(looks):
            while (block := self.source.read()) is not None:
                self.keys += block.data.column(0).to_pylist()
                self.bad += block.bad


def truncated(path: Path) -> None:
    os.truncate(path, 0)
    append(path, lines(12, 40))  # more bytes than there were


def truncated_short(path: Path) -> None:
    os.truncate(path, 0)
    append(path, lines(12, 14))


def renamed(path: Path) -> None:
    append(path, lines(12, 20))
    path.rename(f"{path}.1")
    append(path, lines(20, 40))


def copied(path: Path) -> None:
    append(path, lines(12, 20))
    shutil.copy(path, f"{path}.1")
    os.truncate(path, 0)
    append(path, lines(20, 60))


def deleted(path: Path) -> None:
    append(path, lines(12, 20))
    path.unlink()
    append(path, lines(20, 60))


def rewritten(path: Path) -> None:
    draft = path.with_name(".draft")
    draft.write_text(path.read_text() + lines(12, 20))
    draft.replace(path)


ROTATIONS: dict[str, tuple[Callable[[Path], Any], int, str]] = {
    "truncated": (truncated, 40, "was truncated"),
    "truncated, and shorter": (truncated_short, 14, "was truncated"),
    "renamed": (renamed, 40, "was rotated"),
    "copied and truncated": (copied, 60, "was rotated"),
    "deleted": (deleted, 60, "was replaced"),
    "replaced by itself and more": (rewritten, 20, ""),
}


@pytest.mark.parametrize("how", ROTATIONS)
def test_a_file_that_is_rotated_while_it_is_followed_loses_and_repeats_nothing(
    how: str, tmp_path: Path
) -> None:
    """Defect 08: rows were lost, or put together of half lines, and nothing was said."""
    rotate, end, words = ROTATIONS[how]
    tail = Tail(tmp_path / "s.jsonl")
    tail.path.write_text(lines(0, 12))
    tail.read()
    rotate(tail.path)
    tail.read()
    append(tail.path, lines(end, end + 3))
    tail.read()
    tail.source.close()
    assert tail.keys == [*range(end + 3)]
    assert not tail.bad
    assert [words in each for each in tail.said] == ([True] if words else [])


def test_a_directory_whose_files_are_renamed_in_turn_is_read_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "s.jsonl", pattern="s.jsonl*")
    tail.path.write_text(lines(0, 12))
    tail.read()
    renamed(tail.path)
    tail.read()
    renamed_twice_from = Path(f"{tail.path}.1")
    renamed_twice_from.rename(f"{tail.path}.2")
    tail.path.rename(f"{tail.path}.1")
    append(tail.path, lines(40, 50))
    append(Path(f"{tail.path}.1"), lines(50, 53))  # the writer has not noticed yet
    tail.read()
    tail.source.close()
    assert sorted(tail.keys) == [*range(53)]


def test_bytes_that_are_known_to_be_lost_are_a_rejected_row(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "s.jsonl")
    tail.path.write_text(lines(0, 12) + '{"k": ')
    tail.read()
    os.truncate(tail.path, 0)
    append(tail.path, lines(12, 14))
    tail.read()
    tail.source.close()
    assert tail.keys == [*range(14)]
    (bad,) = tail.bad
    assert bad.code == "HR-R106"
    assert "6 bytes" in bad.reason


def test_a_line_cut_by_a_replacement_is_rejected(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "s.jsonl")
    tail.path.write_text(lines(0, 12) + '{"k": 7')
    tail.read()
    tail.path.unlink()
    tail.path.write_text(lines(12, 60))
    tail.read()
    tail.source.close()
    assert tail.keys == [*range(60)]
    assert [(bad.code, bad.raw) for bad in tail.bad] == [("HR-R109", '{"k": 7')]


class Forbidding(disk.Disk):
    """Nothing may be read."""

    def open(self, path: Path, mode: str, buffering: int = -1, *, private: bool = False) -> BinaryIO:
        raise PermissionError(13, "Permission denied", str(path))


def test_a_file_that_may_not_be_read_for_a_while_is_not_taken_for_another(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "s.jsonl")
    tail.path.write_text(lines(0, 12))
    tail.read()
    append(tail.path, lines(12, 15))
    with disk.using(Forbidding()), pytest.raises(HeadraceError, match="HR-C006"):
        tail.read()
    tail.read()
    tail.source.close()
    assert tail.keys == [*range(15)]


@tuning.using(finished_log_bytes=100, followed_files=1, quiet_looks=1)
def test_a_log_of_outdated_lines_is_written_again(tmp_path: Path) -> None:
    log = FinishedFiles(tmp_path / "log", "s")
    (tmp_path / "in").mkdir()
    source = FilesSource(str(tmp_path / "in"), SCHEMA, Format("json"), True, root=tmp_path, finished=log)
    for n in range(30):
        append(tmp_path / "in" / f"{n % 3}.jsonl", lines(n, n + 1))
        while source.read() is not None:
            pass
        log.secure()
    source.close()
    position = source.position()
    assert position["log"][0] > 0
    log.forget(position["log"])
    assert len(list((tmp_path / "log").iterdir())) == 2
    again = FilesSource(
        str(tmp_path / "in"),
        SCHEMA,
        Format("json"),
        True,
        root=tmp_path,
        finished=FinishedFiles(tmp_path / "log", "s"),
    )
    again.seek(position)
    assert again.read() is None
    again.close()


def rotate(path: Path, *, created: bool) -> None:
    """As logrotate does: s → s.1 → s.2, and the writer makes a new file at once or when it next writes."""
    for number in range(30, 0, -1):
        if (old := Path(f"{path}.{number}")).exists():
            old.rename(f"{path}.{number + 1}")
    path.rename(f"{path}.1")
    if created:
        path.touch()


@given(st.integers(0, 2**32))
def test_a_log_that_rotates_under_a_backlog_is_read_once(folder: Path, seed: int) -> None:
    """Rows were repeated and lost where a file was rotated between two blocks, or twice between two looks."""
    rng = random.Random(seed)
    home = Path(tempfile.mkdtemp(dir=folder))
    path = home / "s.jsonl"
    path.touch()
    tail, written = Tail(path), 0
    tail.source.how = Format("json", block=rng.choice([64, 500, 1 << 22]))
    tail.read(1)
    for _ in range(rng.randint(1, 12)):
        count = rng.choice([0, 2, 60])
        append(path, lines(written, written + count))
        written += count
        for _ in range(rng.randint(0, 3)):
            if (block := tail.source.read()) is not None:
                tail.keys += block.data.column(0).to_pylist()
                tail.bad += block.bad
        if rng.random() < 0.4:
            rotate(path, created=rng.random() < 0.7)
        if rng.random() < 0.2:
            position = tail.source.position()
            tail.source.close()
            tail.source.seek(position)
    tail.read()
    tail.source.close()
    assert sorted(tail.keys) == [*range(written)]
    assert not tail.bad


def test_a_log_that_is_deleted_under_a_backlog_is_read_to_its_end(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "s.jsonl")
    tail.source.how = Format("json", block=64)
    tail.path.write_text(lines(0, 50))
    assert tail.source.read() is not None
    tail.path.unlink()
    rest = []
    while (block := tail.source.read()) is not None:
        rest += block.data.column(0).to_pylist()
    assert rest[-1] == 49
    assert rest == [*range(rest[0], 50)]
    append(tail.path, lines(50, 60))
    tail.read()
    tail.source.close()
    assert tail.keys == [*range(50, 60)]
