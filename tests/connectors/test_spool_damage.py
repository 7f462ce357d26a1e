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


def read(folder: Path, offset: int = 0, *, secured: int = 0) -> bytes:
    spool = Spool(folder, "s")
    spool.secured = secured
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


def segments(folder: Path) -> list[Path]:
    """Three segments of a spool."""
    spool = Spool(folder, "s")
    for piece in PIECES:
        spool.append(piece)
        spool.close()
    return sorted(folder.iterdir())


def test_a_segment_that_is_missing_among_others_is_noticed(tmp_path: Path) -> None:
    """Nothing after the gap may be passed over in silence."""
    first, second, third = segments(tmp_path)
    assert read(tmp_path) == b"".join(PIECES)
    second.unlink()
    with pytest.raises(HeadraceError, match="HR-C002"):
        read(tmp_path, secured=30)
    assert first.exists()
    assert read(tmp_path, int(third.name[-20:]), secured=30) == PIECES[2], "what is not needed may be gone"


def test_what_was_not_safe_when_power_was_lost_is_given_up_in_words(tmp_path: Path) -> None:
    _, second, third = segments(tmp_path)
    second.write_bytes(second.read_bytes()[:14] + bytes(len(PIECES[1]) - 2))
    spool = Spool(tmp_path, "s")
    spool.secured = len(PIECES[0])
    spool.resume(0)
    assert spool.end == len(PIECES[0])
    assert "a power failure lost what stream s received after byte 9" in spool.lost
    assert not third.exists()
    spool.append(b"new\n")
    spool.close()
    assert read(tmp_path) == PIECES[0] + b"new\n"


def test_zeros_in_what_was_safe_are_damage(tmp_path: Path) -> None:
    _, second, _ = segments(tmp_path)
    second.write_bytes(second.read_bytes()[:14] + bytes(len(PIECES[1]) - 2))
    with pytest.raises(HeadraceError, match="HR-D007"):
        read(tmp_path, secured=100)
