"""Quix Streams from topic to topic: a tumbling count. Run in its own virtual environment, by `kafka_bench`.

python benchmarks/peers/kafka_quix.py ADDRESS TOPIC OUT ROWS

It stops after as many messages as the topic has. Changelog topics are off, which is its faster way.
"""

import json
import resource
import sys
import tempfile
import time

from quixstreams import Application

address, topic, out, rows = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    app = Application(
        broker_address=address,
        consumer_group=f"quix-{out}",
        auto_offset_reset="earliest",
        use_changelog_topics=False,
        state_dir=folder,
        loglevel="ERROR",
        commit_interval=1.0,
    )
    source = app.topic(
        topic, value_deserializer="json", timestamp_extractor=lambda value, *_: value["ts"] // 1000
    )
    counts = app.dataframe(source).tumbling_window(duration_ms=10_000, grace_ms=0).count().final()
    counts = counts.apply(
        lambda value, key, *_: {"k": int(key), "n": value["value"], "until": value["end"] * 1000},
        metadata=True,
    )
    counts.to_topic(app.topic(out, value_serializer="json"))
    begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    app.run(count=int(rows), timeout=60)
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
print(json.dumps({"seconds": seconds, "cpu": cpu, "rows": int(rows)}))
