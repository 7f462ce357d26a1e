"""Counts of skews in buckets of equal relative width: exact below 64, within 1/64 above, at any magnitude."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.time.skew import Ints

Floats = npt.NDArray[np.float64]

_BITS = 6
_SUB = 1 << _BITS
BUCKETS = (64 - _BITS) * _SUB


def bucket(values: Ints) -> Ints:
    """The bucket of each value ≥ 0; buckets ascend with values."""
    _, exponent = np.frexp(values.astype(np.float64))
    shift = np.maximum(exponent.astype(np.int64) - 1 - _BITS, 0)
    shift -= (values >> shift) < _SUB * (shift > 0)
    return np.where(values < _SUB, values, shift * _SUB + (values >> shift))


def upper(buckets: Ints) -> Ints:
    """The largest value of each bucket."""
    shift = np.maximum(buckets // _SUB - 1, 0)
    mantissa = buckets - shift * _SUB
    return np.where(buckets < _SUB, buckets, (mantissa << shift) + ((np.int64(1) << shift) - 1))


def quantiles(counts: Floats, share: Floats) -> Ints:
    """Per row, the least bucket top that at least `share` of its counts do not exceed; 0 if it has none."""
    running = np.cumsum(counts, axis=-1)
    total = running[..., -1]
    reached = running >= (share * total * (1 - 1e-12))[..., None]
    return np.where(total > 0, upper(np.asarray(np.argmax(reached, axis=-1), dtype=np.int64)), 0)
