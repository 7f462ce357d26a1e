"""Kafka (JSON, 200 bytes) to a tumbling count to Kafka: Headrace, Bytewax and Quix Streams on one broker.

    python -m benchmarks.kafka_bench [--rows 2000000] [--peer-rows 200000] [--turns 3]

All read a topic of one partition, keyed by 100 keys, from its beginning to its end, and count in windows of
ten seconds. A peer gets fewer messages, and rates are compared message by message. Each rate is the best of
the turns, taken one after the other. The messages in the topic of answers are compared with the input.
`make bench-peers` installs the peers; one that is not there is left out, and said to be.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.report import OUT, Result, write
from examples.kafka.broker import Broker, CannotStart, jars
from headrace.pipeline import parse
from headrace.runtimes.embedded import Runner

ROOT = Path(__file__).parents[1]
PEERS = {"bytewax": "kafka_bytewax.py", "quix": "kafka_quix.py"}
PACKAGES = {"bytewax": "bytewax", "quix": "quixstreams"}
FLOOR = 10.0
KEYS = 100
APART = 500
"""Microseconds between two messages."""
WINDOW = 10_000_000
BASE = 1_700_000_000_000_000
LENGTH = 200
TIMEOUT = 1200
PATIENCE = 120.0
Counts = Counter[tuple[int, int]]

TEXT = """
[pipeline]
name = "bench"
runtime = "embedded"
checkpoint = "checkpoint"

[streams.s]
schema = "ts BIGINT, k INT"
time = {{ column = "ts", unit = "us" }}

[streams.s.source]
type = "kafka"
servers = "{address}"
topic = "{topic}"
follow = false

[[queries]]
name = "q"
sql = "SELECT k, count(*) AS n, window_end AS until FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
sink = {{ type = "kafka", servers = "{address}", topic = "{out}", key = "k" }}
"""


def value(i: int) -> bytes:
    """A message of 200 bytes."""
    text = json.dumps({"ts": BASE + i * APART, "k": i % KEYS, "note": ""})
    return f'{text[:-2]}{"x" * (LENGTH - len(text))}"}}'.encode()


def expected(rows: int) -> Counts:
    """The answers of windows that have ended."""
    last = BASE + (rows - 1) * APART
    whole = Counts()
    for i in range(rows):
        until = ((BASE + i * APART) // WINDOW + 1) * WINDOW
        if until <= last // WINDOW * WINDOW:
            whole[i % KEYS, until] += 1
    return whole


def new_topic(address: str, name: str) -> str:
    client = AdminClient({"bootstrap.servers": address})
    for made in client.create_topics([NewTopic(name, 1, 1)]).values():
        made.result(PATIENCE)
    return name


def fill(address: str, topic: str, rows: int) -> str:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.num.messages": 10_000})
    for i in range(rows):
        while True:
            try:
                producer.produce(topic, value(i), str(i % KEYS))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE) == 0
    return topic


def answers(address: str, topic: str, until: int) -> Counts:
    """The counts in a topic, of windows that end by an instant."""
    settings = {"bootstrap.servers": address, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found, ended, deadline = Counts(), False, time.monotonic() + PATIENCE
    while not ended and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            if message.error() is not None:
                ended = True
                continue
            row = json.loads(message.value())
            if row["until"] <= until:
                found[row["k"], row["until"]] += row["n"]
    consumer.close()
    return found


def headrace(address: str, topic: str, out: str, rows: int) -> dict[str, Any]:
    """Our run, in this process, as the peers measure theirs."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(parse(TEXT.format(address=address, topic=topic, out=out), root=Path(folder)))
        begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        runner.run()
        seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return {"seconds": seconds, "cpu": cpu, "rows": rows}


def python_of(name: str) -> Path:
    """The Python of a peer's own virtual environment."""
    return ROOT / ".venvs" / name / "bin" / "python"


def peer(name: str, *given: object) -> dict[str, Any]:
    """A peer in its own virtual environment."""
    command = [python_of(name), ROOT / "benchmarks" / "peers" / PEERS[name], *given]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def versions(present: list[str]) -> dict[str, str]:
    """Of the client here, and of the peers in their own environments."""
    code = "from importlib.metadata import version; print(version({!r}))"
    asked = [(sys.executable, "confluent-kafka"), *((python_of(name), PACKAGES[name]) for name in present)]
    return {
        package: subprocess.run(
            [str(python), "-c", code.format(package)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for python, package in asked
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka_bench")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--peer-rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-kafka-") as folder:
        try:
            broker = Broker(jars(), Path(folder, "broker"), flags=())
            broker.begin()
        except CannotStart as error:
            print(f"There is no Kafka broker, so nothing is measured: {error}")
            return 0
        try:
            return 0 if measure(broker.address, given.rows, given.peer_rows, given.turns) else 1
        finally:
            broker.kill()


def measure(address: str, rows: int, peer_rows: int, turns: int) -> bool:
    """Measure all in turns, and write the results; whether every bound holds."""
    topics = {count: fill(address, new_topic(address, f"in{count}"), count) for count in {rows, peer_rows}}
    present = [name for name in PEERS if (ROOT / ".venvs" / name / ".installed").exists()]
    for name in PEERS.keys() - set(present):
        print(f"{name} is not installed and is left out: make bench-peers")
    best: dict[str, dict[str, Any]] = {}
    for turn in range(turns):
        for name in ("headrace", *present):
            count = rows if name == "headrace" else peer_rows
            out = new_topic(address, f"{name}-{os.getpid()}-{turn}")
            asked = (address, topics[count], out, count)
            found = headrace(*asked) if name == "headrace" else peer(name, *asked)
            right = expected(count)
            assert answers(address, out, max(until for _, until in right)) == right, f"{name}: wrong answers"
            speed, cpu = count / found["seconds"], found["cpu"] / count * 1e6
            print(f"{name}: {speed:,.0f} messages/s, {cpu:.2f} CPU-µs each")
            if name not in best or speed > best[name]["rows"] / best[name]["seconds"]:
                best[name] = found
    return write(OUT / "kafka.json", results(best), versions(present))


def results(best: dict[str, dict[str, Any]]) -> list[Result]:
    """Rates and CPU time of each, and how many times faster ours is."""
    rate = {name: each["rows"] / each["seconds"] for name, each in best.items()}
    found: list[Result] = []
    for name, each in best.items():
        found.append({"name": f"kafka.tumbling.{name}", "value": rate[name], "unit": "messages/s"})
        cpu = each["cpu"] / each["rows"] * 1e6
        found.append({"name": f"kafka.tumbling.{name}.cpu", "value": cpu, "unit": "µs of CPU per message"})
    for name in PEERS.keys() & best.keys():
        times = rate["headrace"] / rate[name]
        found.append({"name": f"kafka.tumbling.vs_{name}", "value": times, "unit": "×", "floor": FLOOR})
        own, theirs = (best[each]["cpu"] / best[each]["rows"] for each in ("headrace", name))
        found.append({"name": f"kafka.tumbling.vs_{name}.cpu", "value": theirs / own, "unit": "× less CPU"})
    return found


if __name__ == "__main__":
    sys.exit(main())
