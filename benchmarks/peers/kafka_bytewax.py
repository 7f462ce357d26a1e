"""Bytewax from topic to topic: a tumbling count. Run in its own virtual environment, by `kafka_bench`.

python benchmarks/peers/kafka_bytewax.py ADDRESS TOPIC OUT ROWS

It reads to the end of the topic (`tail=False`); windows close by the data.
"""

import json
import resource
import sys
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
STILL = datetime(2100, 1, 1, tzinfo=UTC)

address, topic, out, rows = sys.argv[1:]


def read(message):
    value = json.loads(message.value)
    return str(value["k"]), value["ts"]


def counted(found):
    key, (window, n) = found
    value = {"k": int(key), "n": n, "until": (window + 1) * 10_000_000}
    return KafkaSinkMessage(key.encode(), json.dumps(value).encode())


flow = Dataflow("count")
messages = op.input("in", flow, KafkaSource([address], [topic], tail=False, batch_size=10_000))
clock = win.EventClock(
    lambda ts: ORIGIN + timedelta(microseconds=ts),
    timedelta(0),
    now_getter=lambda: STILL,
    to_system_utc=lambda _: None,
)
windower = win.TumblingWindower(timedelta(seconds=10), ORIGIN)
keyed = op.map("read", messages, read)
counts = win.fold_window("count", keyed, clock, windower, lambda: 0, lambda n, _: n + 1, lambda a, b: a + b)
op.output("out", op.map("write", counts.down, counted), KafkaSink([address], out))

begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
run_main(flow)
seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": int(rows)}))
