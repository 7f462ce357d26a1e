"""What is held in memory, each buffer once however many hold it, and whole however little of it is shown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch


class Holdings:
    """Counts buffers by where they lie. A slice holds all of what it was cut from."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def add(self, batches: Iterable[Batch]) -> int:
        """Bytes of what these batches hold and nothing counted before holds."""
        return sum(self._batch(batch) for batch in batches)

    def _batch(self, batch: Batch) -> int:
        columns = sum(self._column(column) for column in batch.data.columns)
        times = (batch.start, batch.end, batch.sign, batch.arrival)
        return columns + sum(self._array(each) for each in times if each is not None)

    def _column(self, column: pa.Array) -> int:
        return sum(self._once(b.address, b.size) for b in column.buffers() if b is not None)

    def _array(self, array: npt.NDArray[Any]) -> int:
        whole = array
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return self._once(whole.__array_interface__["data"][0], whole.nbytes)

    def _once(self, address: int, size: int) -> int:
        if address in self._seen:
            return 0
        self._seen.add(address)
        return size
