from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import CSVSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(seconds=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))


def add(counts, row):
    counts[row["bidder"]] = counts.get(row["bidder"], 0) + 1
    return counts


def merge(one, other):
    return {name: one.get(name, 0) + other.get(name, 0) for name in one | other}


def first(each):
    _, (window, counts) = each
    return [(window, name, counts[name]) for name in sorted(counts, key=counts.get, reverse=True)[:2]]


flow = Dataflow("topn")
bids = op.key_on("all", op.input("bids", flow, CSVSource("bids.csv")), lambda row: "all")
counts = win.fold_window("count", bids, clock, minutes, dict, add, merge)
op.output("out", op.flat_map("first", counts.down, first), StdOutSink())
run_main(flow)
