"""Names for NumPy arrays: the same name for the same kind of array everywhere."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
"""Which rows."""
Ints = npt.NDArray[np.int64]
"""Whole numbers."""
Ids = npt.NDArray[np.int64]
"""Ids of rows."""
Times = npt.NDArray[np.int64]
"""Ticks of the time domain."""
Lines = npt.NDArray[np.int64]
"""Lines of a table of words."""
Events = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Reals = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int64]
"""Dense codes of group keys."""
Indices = npt.NDArray[np.int64]
"""Places of rows in a batch."""
Words = npt.NDArray[np.int64]
"""Values as 64-bit words."""
