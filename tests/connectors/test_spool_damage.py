"""What is left of a spool: whole frames are read, one that was cut off was never used, damage is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.spool import HEAD, Spool
from headrace.errors import HeadraceError

PIECES = [b'{"n": 1}\n', b'{"n": 2}\n{"n": 3}\n', b'{"n": 4}\n']


def written(folder: Path, pieces: list[bytes] = PIECES) -> Path:
    """The one segment of a spool that got these pieces."""
    spool = Spool(folder, "s")
    for piece in pieces:
        spool.append(piece)
    spool.close()
    (path,) = folder.iterdir()
    return path


def read(folder: Path, offset: int = 0) -> bytes:
    spool = Spool(folder, "s")
    spool.resume(offset)
    found, at = b"", offset
    while at < spool.end:
        piece = spool.read(at, 7)
        found, at = found + piece, at + len(piece)
    spool.close()
    return found


@given(st.data())
def test_a_segment_that_was_cut_off_anywhere_has_its_whole_frames(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    path = written(folder)
    size = data.draw(st.integers(0, path.stat().st_size))
    path.write_bytes(path.read_bytes()[:size])
    whole, left = b"", size
    for piece in PIECES:
        left -= HEAD.size + len(piece)
        whole += piece if left >= 0 else b""
    assert read(folder) == whole


def test_zeros_that_a_loss_of_power_left_are_no_bytes(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(1000))
    assert read(tmp_path) == b"".join(PIECES)


@given(st.data())
def test_22_any_flipped_bit_is_an_error_that_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    path = written(folder)
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(HeadraceError, match="HR-D007") as error:
        read(folder)
    assert "truncate -s" in error.value.hint


def test_what_the_error_says_to_do_helps(tmp_path: Path) -> None:
    path = written(tmp_path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(HeadraceError, match="HR-D007") as error:
        read(tmp_path)
    size = int(error.value.hint.partition("truncate -s ")[2].split()[0])
    path.write_bytes(path.read_bytes()[:size])
    assert read(tmp_path) == b"".join(PIECES[:2])


def test_a_segment_that_is_missing_among_others_is_noticed(tmp_path: Path) -> None:
    """Nothing after the gap may be passed over in silence."""
    spool = Spool(tmp_path, "s")
    for piece in PIECES:
        spool.append(piece)
        spool.close()
    first, second, third = sorted(tmp_path.iterdir())
    assert read(tmp_path) == b"".join(PIECES)
    second.rename(tmp_path / "elsewhere")
    with pytest.raises(HeadraceError, match="HR-C002"):
        read(tmp_path)
    assert read(tmp_path, int(third.name[-20:])) == PIECES[2], "what is not needed may be gone"
    assert first.exists()
