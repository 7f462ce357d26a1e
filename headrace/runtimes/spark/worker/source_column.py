"""The column of a stream that names the source of a row, such as a device, on its way to the shards.

Partitioners have no state: they send the greatest time of each cell of sources that has rows
(`headrace.time.sources`), and every shard derives the same heartbeats from that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Times
from headrace.state.source_cells import cells_of

SOURCE = "__headrace_source"
"""The source of a row, if the columns of the row do not have it as it came."""

Cells = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class SourceColumn:
    """Which column it is, and the number of cells. `judged`: shards judge each row by its source."""

    name: str
    cells: int
    judged: bool
    numbered: bool = False

    def of(self, batch: pa.RecordBatch, rows: pa.RecordBatch) -> Cells:
        """The cells of the rows of a batch."""
        column = batch.column(SOURCE) if SOURCE in batch.schema.names else rows.column(self.name)
        return cells_of(column, self.cells, self.numbered).astype(np.uint16)

    def greatest(self, times: Times, clocks: Times, cells: Cells) -> tuple[Times, Times, Cells]:
        """The latest time of each cell at each instant, with the instant and the cell."""
        if not len(times) or clocks.strides == (0,) or bool((clocks == clocks[0]).all()):
            places, instants = cells.astype(np.int64), clocks[:1]
        else:
            instants, which = np.unique(clocks, return_inverse=True)
            places = which * self.cells + cells
        best = np.full(len(instants) * self.cells, np.iinfo(np.int64).min)
        np.maximum.at(best, places, times)
        found = np.flatnonzero(best > np.iinfo(np.int64).min)
        return best[found], instants[found // self.cells], (found % self.cells).astype(np.uint16)
