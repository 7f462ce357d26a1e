from datetime import datetime, timedelta

import bytewax.operators as op
from bytewax.connectors.files import CSVSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main


def follow(before, row):
    at = datetime.fromisoformat(row["at"])
    matches = before and (before[0], row["ok"]) == ("no", "yes") and at - before[2] < timedelta(seconds=10)
    return (row["ok"], row["place"], at), (before[1], row["place"]) if matches else None


flow = Dataflow("pattern")
logins = op.key_on("by user", op.input("logins", flow, CSVSource("logins.csv")), lambda row: row["user"])
found = op.filter("found", op.stateful_map("follow", logins, follow), lambda each: each[1] is not None)
op.output("out", found, StdOutSink())
run_main(flow)
