"""Bytewax with Arrow batches as its items: for a filter and a merge, which look into no row, much faster.

Its windows and joins take rows, so that this is a way for the union alone; still in no order.
"""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.compute as pc
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource, run_main

from benchmarks.peers.bytewax_peer import Keep, given
from benchmarks.peers.peer import asked, pieces, timed, write
from benchmarks.peers.tasks import BASE, KEPT

BATCH = 65_536


def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.less(batch.column("v"), KEPT))


def main() -> None:
    run = asked()
    flow: Any = Dataflow("peer")
    sides = []
    for name in run.task.streams:
        batches = list(pieces(run.read(name), BATCH))
        sides.append(op.map(f"filter {name}", op.input(name, flow, TestingSource(batches)), kept))
    op.output("out", op.merge("merge", *sides), Keep())
    seconds = timed(lambda: run_main(flow))
    write(run, pa.Table.from_batches(given), seconds, begin=BASE)


if __name__ == "__main__":
    main()
