"""Load shedding: a declared share of the rows beyond a declared backlog is dropped and counted.

Which rows are kept depends only on the seed and on a row's number in its stream, so a recorded run
replays the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.runtimes.embedded.inflow import Piece

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True)
class Shed:
    """While `rows` rows or `bytes` bytes are waiting, keep only a share `keep` of new rows."""

    keep: float
    rows: int | None = None
    bytes: int | None = None
    seed: int = 0


class Shedder:
    """Counts the rows of one stream and its waiting rows; `number` is the number of the next row."""

    def __init__(self, policy: Shed) -> None:
        self.policy = policy
        self.number = 0
        self._rows = self._bytes = 0

    def begin(self) -> None:
        """Start a new step: no rows are waiting."""
        self._rows = self._bytes = 0

    def admit(self, piece: Piece) -> Piece:
        """The rows that have room or are kept, and how many were shed."""
        size = len(piece)
        numbers = np.arange(self.number, self.number + size, dtype=np.uint64)
        self.number += size
        keep = np.arange(size) < self._room(piece)
        keep |= drawn(numbers, self.policy.seed) < self.policy.keep
        kept = piece if keep.all() else _filtered(piece, keep)
        self._rows += len(kept)
        self._bytes += kept.data.nbytes
        return kept

    def _room(self, piece: Piece) -> int:
        """How many more rows may wait."""
        room = [len(piece)]
        if self.policy.rows is not None:
            room.append(self.policy.rows - self._rows)
        if self.policy.bytes is not None and len(piece):
            room.append(int((self.policy.bytes - self._bytes) * len(piece) // max(1, piece.data.nbytes)))
        return max(0, min(room))


def drawn(numbers: npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each row number, as if drawn at random (SplitMix64)."""
    x = (numbers + np.uint64(1)) * _STEP + np.uint64(seed * int(_MIX_A) % 2**64)
    x = (x ^ (x >> np.uint64(30))) * _MIX_A
    x = (x ^ (x >> np.uint64(27))) * _MIX_B
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) / 2.0**53


def _filtered(piece: Piece, keep: npt.NDArray[np.bool_]) -> Piece:
    """The piece with only the rows to keep; the others are counted as shed."""
    mask = pa.array(keep)
    times = None if piece.times is None else piece.times.filter(mask)
    shed = int(np.count_nonzero(~keep))
    return replace(piece, data=piece.data.filter(mask), times=times, shed=piece.shed + shed)
