"""What came over a wire is read again from its spool: the same blocks, nothing lost, nothing repeated."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.contract import Block
from headrace.connectors.formats import Format
from headrace.connectors.live import LiveLines
from headrace.connectors.spool import Spool
from headrace.errors import HeadraceError

SCHEMA = pa.schema([("n", pa.int64())])


class Chunks:
    """A wire that gives what it is given, and is then silent."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.left = chunks

    def receive(self) -> bytes | None:
        return self.left.pop(0) if self.left else None

    def close(self) -> None:
        return None


def live(chunks: list[bytes], folder: Path, how: Format | None = None) -> LiveLines:
    return LiveLines(Chunks(chunks), SCHEMA, how or Format("json"), False, Spool(folder, "s"))


def numbers(block: Block | None) -> list[int]:
    return [] if block is None else [row["n"] for row in block.data.to_pylist()]


Runs = st.lists(
    st.tuples(st.lists(st.integers(1, 30), max_size=6), st.integers(0, 6)), min_size=1, max_size=5
)
"""For each run: the sizes of the chunks that come, and after how many of its blocks there is a commit."""


@given(Runs, st.integers(1, 8))
def test_rows_after_the_last_commit_are_read_again(runs: Any, width: int) -> None:
    with TemporaryDirectory() as folder:
        sent, committed, at = 0, [], None
        for sizes, stop in runs:
            text = b"".join(b'{"n": %0*d}\n' % (1, sent + i) for i in range(width))
            sent += width
            chunks, rest = [], text
            for size in sizes:
                chunks, rest = [*chunks, rest[:size]], rest[size:]
            source = live([c for c in (*chunks, rest) if c], Path(folder))
            if at is not None:
                source.seek(at)
            taken: list[int] = []
            for _ in range(stop):
                taken += numbers(source.read())
            assert source.spool is not None
            source.spool.secure()
            at, committed = dict(source.position()), committed + taken
            source.spool.forget(at["bytes"])
            while source.wire.left:  # type: ignore[attr-defined]
                source.read()
            source.close()  # as kill -9 does: nothing of this was committed
        last = live([], Path(folder))
        assert at is not None
        last.seek(at)
        for _ in range(sent):
            committed += numbers(last.read())
        last.close()
        assert committed == list(range(sent))


def test_a_block_that_is_read_again_is_the_same_block(tmp_path: Path) -> None:
    source = live([b'{"n": 1}\n{"n": 2}\n{"n"', b": 3}\n"], tmp_path)
    at = source.position()
    block = source.read()
    assert block is not None
    first = numbers(block)
    assert first == [1, 2, 3]
    source.wire.left.append(b'{"n": 4}\n')  # type: ignore[attr-defined]
    source.read()
    source.close()
    again = live([], tmp_path)
    again.seek(at, block.span)
    assert [numbers(again.read()), numbers(again.read()), again.read()] == [first, [4], None]
    again.close()


def test_a_line_that_a_kill_cut_off_is_rejected(tmp_path: Path) -> None:
    source = live([b'{"n": 1}\n{"n": '], tmp_path)
    assert numbers(source.read()) == [1]
    source.close()
    again = live([b'{"n": 2}\n'], tmp_path)
    again.seek(source.position())
    cut = again.read()
    assert cut is not None
    assert [(bad.code, bad.raw) for bad in cut.bad] == [("HR-R109", '{"n": ')]
    assert numbers(again.read()) == [2]
    again.close()


def test_names_of_columns_are_kept_for_what_is_read_again_and_asked_of_the_next_peer(tmp_path: Path) -> None:
    csv = Format("csv", header=True)
    source = live([b"x,n\n7,1\n", b""], tmp_path, csv)
    assert numbers(source.read()) == [1]
    at = dict(source.position())
    source.ended = False
    source.wire.left.append(b"7,2\n")  # type: ignore[attr-defined]
    assert numbers(source.read()) == [2]
    source.close()
    again = live([b"n\n3\n"], tmp_path, csv)
    again.seek(at)
    assert [numbers(again.read()), numbers(again.read())] == [[2], [3]]
    again.close()


def test_what_no_checkpoint_needs_is_removed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "s")
    for _ in range(3):
        spool.append(b"0123456789")
        spool.forget(spool.end - 15)
    assert sorted(path.name[-2:] for path in tmp_path.iterdir()) == ["10", "20"]
    assert spool.read(12, 3) == b"234"
    other = Spool(tmp_path, "s")
    with pytest.raises(HeadraceError, match="HR-C002"):
        other.resume(5)
