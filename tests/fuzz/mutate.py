"""Bytes and texts with something wrong in them, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

NASTY = [
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\r\n",
    b'"',
    b"\\",
    b",",
    b"{}",
    b"[" * 3000,
    b'{"a":' * 800,
    b"1e999",
    b"-1e-999",
    b"NaN",
    b"Infinity",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"9" * 5000,
    b"0.1" * 50,
    b"null",
    b"true",
    b'"\\ud800"',
    b"\\u0000",
    b"\xed\xa0\x80",
    b"0000-00-00",
    b"9999-12-31T23:59:60Z",
    b"10000-01-01",
    b"-290000-01-01T00:00:00",
    b"\x18\n",
    b"\x19\n",
    "é漢🙂".encode(),
    b"x" * 3000,
]
Change = Callable[[Random, bytearray], None]


def _place(random: Random, data: bytearray) -> int:
    return random.randrange(len(data) + 1)


def _flip(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])


def _number(random: Random, data: bytearray) -> None:
    """A length, an offset or a count that is wrong."""
    at, size = _place(random, data), random.choice([2, 4, 8])
    value = random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**40, random.getrandbits(16)])
    data[at : at + size] = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")


def _delete(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    del data[at : at + random.choice([1, 2, 8, 100, len(data)])]


def _double(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = data[at : at + random.choice([1, 8, 100, 1000])]


def _insert(random: Random, data: bytearray) -> None:
    at = _place(random, data)
    data[at:at] = random.choice(NASTY)


def _replace(random: Random, data: bytearray) -> None:
    at, piece = _place(random, data), random.choice(NASTY)
    data[at : at + random.choice([1, 5, len(piece)])] = piece


def _swap(random: Random, data: bytearray) -> None:
    a, b = sorted((_place(random, data), _place(random, data)))
    size = min(random.choice([1, 4, 16, 200]), b - a)
    data[a : a + size], data[b : b + size] = data[b : b + size], data[a : a + size]


def _cut(random: Random, data: bytearray) -> None:
    del data[_place(random, data) :]


CHANGES: list[Change] = [
    _flip,
    _flip,
    _set,
    _number,
    _delete,
    _double,
    _insert,
    _replace,
    _replace,
    _swap,
    _cut,
]


IN_PLACE: list[Change] = [_flip, _set, _number, _swap]


def spoilt(random: Random, data: bytes, *, keep_size: bool = False) -> bytes:
    """The data with a few changes; sometimes with none."""
    found = bytearray(data)
    for _ in range(random.choice([0, 1, 1, 2, 3, 8])):
        random.choice(IN_PLACE if keep_size else CHANGES)(random, found)
    return bytes(found[: 1 << 20])
