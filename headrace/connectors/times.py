"""The one rule for times in text: `docs/pipelines.md`, "Times in text", says what is read as what.

JSON lines and CSV, files and sockets, the embedded runtime and Spark all come here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.kernels.time_text import DATES, DAY, INSTANTS, NOTHING, WALLS, read_times
from headrace.schema import DataType

Mask = npt.NDArray[np.bool_]


def is_time(of: DataType) -> bool:
    """Whether the rule is about this type."""
    return bool(pt.is_timestamp(of) or pt.is_date(of))


def times_of(texts: pa.Array, to: DataType) -> tuple[pa.Array, Mask]:
    """Timestamps or dates of texts, null where there is none, and which texts are not one.

    An instant (TIMESTAMP, in Arrow with a zone) that is written without a zone is in UTC. What is written
    with a zone is an instant, and never becomes a wall-clock reading (TIMESTAMP_NTZ). Nothing here knows of a
    session's time zone.
    """
    ticks = np.empty(len(texts), np.int64)
    data, offsets = _buffers(texts)
    read_times(data, offsets, _kind(to), ticks)
    none = ticks == NOTHING
    bad = none & texts.is_valid().to_numpy(zero_copy_only=False) if texts.null_count else none
    return _typed(np.where(none, 0, ticks), none, to), bad


def _kind(of: DataType) -> int:
    if pt.is_date(of):
        return DATES
    return INSTANTS if of.tz else WALLS


def _buffers(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes of the texts, and where each begins and ends; a null is empty, which is no time."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8), bounds


def _typed(micros: npt.NDArray[np.int64], none: Mask, to: DataType) -> pa.Array:
    if pt.is_timestamp(to):
        return pa.array(micros, pa.timestamp("us", to.tz), mask=none).cast(to, safe=False)
    days = pa.array((micros // DAY).astype(np.int32), pa.int32(), mask=none)
    return days.cast(pa.date32()).cast(to)
