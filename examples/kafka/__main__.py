"""A broker, a producer and a pipeline, with one command: python -m examples.kafka

Orders come for some seconds, with messages that are not orders, and one partition of three gets none. Halfway
the pipeline is killed and started again. At the end the counts in the topic are compared with the orders.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import ROOT, Broker, CannotStart, jars

HERE = Path(__file__).resolve().parent
ITEMS = ("lamp", "clock", "chair")
PER_SECOND = 50
PATIENCE = 120
Counts = Counter[tuple[str, int]]
"""Orders by item and end of the window, in microseconds."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.kafka", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long orders come")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory(prefix="headrace-kafka-") as folder:
        try:
            broker = Broker(found_jars(), Path(folder, "broker"))
            say("starting a Kafka broker ...")
            broker.begin()
        except CannotStart as error:
            sys.exit(f"The example cannot run: {error}")
        try:
            play(broker.address, Path(folder), seconds)
        finally:
            broker.kill()


def found_jars() -> Path:
    """The jars of the broker, downloaded once."""
    try:
        return jars()
    except CannotStart:
        done = subprocess.run([ROOT / "scripts" / "ensure-kafka"], stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise
        return jars()


def play(address: str, folder: Path, seconds: float) -> None:
    """Send orders while the pipeline runs, and compare what it answers."""
    say(f"the broker listens at {address}; making the topics orders (3 partitions) and counts")
    make_topics(address)
    (folder / "pipeline.toml").write_text((HERE / "pipeline.toml").read_text())
    pipeline = start(folder, address)
    try:
        sent = produce(address, seconds / 2)
        say(f"{sum(sent.values())} orders so far; the pipeline is killed (kill -9) and started again")
        kill(pipeline)
        pipeline = start(folder, address)
        sent += produce(address, seconds / 2)
        say(f"{sum(sent.values())} orders sent, and two messages that are not orders")
        found = follow(address, sum(sent.values()), pipeline, folder)
    finally:
        kill(pipeline)
    report(folder, sent, found)


def make_topics(address: str) -> None:
    client = AdminClient({"bootstrap.servers": address})
    made = client.create_topics([NewTopic("orders", 3, 1), NewTopic("counts", 1, 1)])
    for each in made.values():
        each.result(PATIENCE)


def start(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """`headrace run` in a process of its own."""
    env = {**os.environ, "BROKERS": address, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "headrace.cli", "run", "pipeline.toml"]
    with open(folder / "log", "ab") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)


def kill(pipeline: subprocess.Popen[bytes]) -> None:
    pipeline.send_signal(signal.SIGKILL)
    pipeline.wait()


def produce(address: str, seconds: float) -> Counts:
    """Send orders as they happen, to two of the three partitions, and an unreadable message."""
    rng, sent = random.Random(21), Counts()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        at, item = datetime.now(UTC), rng.choice(ITEMS)
        value = {"item": item, "price": rng.randrange(1, 100), "at": at.isoformat()}
        producer.produce("orders", json.dumps(value), partition=rng.randrange(2))
        producer.poll(0)
        micros = round(at.timestamp() * 1_000_000)
        sent[item, (micros // 2_000_000 + 1) * 2_000_000] += 1
        time.sleep(1 / PER_SECOND)
    producer.produce("orders", b"this is not an order", partition=0)
    assert producer.flush(PATIENCE) == 0
    return sent


def follow(address: str, orders: int, pipeline: subprocess.Popen[bytes], folder: Path) -> Counts:
    """Print the counts as a reader of committed messages sees them, until all orders are in them."""
    settings = {"bootstrap.servers": address, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("counts", 0, OFFSET_BEGINNING)])
    found, deadline = Counts(), time.monotonic() + PATIENCE
    while sum(found.values()) < orders:
        if pipeline.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"The pipeline did not finish:\n{(folder / 'log').read_text()[-3000:]}")
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        row: dict[str, Any] = json.loads(message.value())
        until = datetime.fromtimestamp(row["until"] / 1_000_000, UTC)
        say(f"  {until:%H:%M:%S}  {row['item']:6} {row['orders']:3} orders, highest {row['highest']}")
        found[row["item"], row["until"]] += row["orders"]
    consumer.close()
    return found


def report(folder: Path, sent: Counts, found: Counts) -> None:
    """Compare the counts with the orders."""
    rejected = [json.loads(line) for line in (folder / "rejected.jsonl").read_text().splitlines()]
    for each in rejected:
        say(f"rejected: {each['reason']}")
    late, total = len((folder / "late.jsonl").read_text().splitlines()), sum(found.values())
    if found != sent:
        sys.exit(
            f"The counts are not those of the orders: {sent - found} is missing, {found - sent} too much"
        )
    say(f"every order was counted exactly once: {total} in {len(found)} counts, {late} late")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
