"""The Kafka pipeline of the guide as it is written, on either runtime, with a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from examples.kafka.broker import Broker
from tests.kafka.embedded import produce

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 240
PAST = (datetime.now(UTC) - timedelta(minutes=5)).replace(second=0, microsecond=0)
"""A minute that has ended."""
BIDS = [("lamp", 9, 1), ("lamp", 7, 20), ("clock", 5, 30), ("lamp", 11, 65)]


def example() -> str:
    """The pipeline file in the guide."""
    text = (ROOT / "docs" / "guide.md").read_text()
    (found,) = (block for block in re.findall(r"```toml\n(.*?)```", text, re.S) if 'type = "kafka"' in block)
    return str(found)


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    """What a query has written: a file, or a folder with one for each micro-batch."""
    path = root / name
    files = sorted(path.glob("batch=*/part-*")) if path.is_dir() else [path] * path.exists()
    lines = [line for file in files for line in file.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.endswith("}")]


def check(runtime: str, shared: Broker, tmp_path: Path) -> None:
    """Run the example until its answers are there, and compare them."""
    client = AdminClient({"bootstrap.servers": shared.address})
    made = client.create_topics([NewTopic("bids", 2, 1)])["bids"].exception(60)
    assert made is None or "TOPIC_ALREADY_EXISTS" in str(made)
    values = [
        {"item": item, "price": price, "at": (PAST + timedelta(seconds=at)).isoformat()}
        for item, price, at in BIDS
    ]
    start = [{"value": json.dumps(value), "partition": i % 2} for i, value in enumerate(values)]
    if made is None:  # otherwise it has them already
        produce(shared.address, "bids", start)
    (tmp_path / "jars").symlink_to(shared.jars / "connector")
    (tmp_path / "pipeline.toml").write_text(example())
    found = ran(runtime, tmp_path, shared.address)
    assert sorted((r["item"], r["events"], r["price"]) for r in found["minutes"]) == [
        ("clock", 1, 5),
        ("lamp", 1, 11),
        ("lamp", 2, 9),
    ]
    assert sorted((r["item"], r["price"]) for r in found["means"]) == [
        ("clock", 5.0),
        ("lamp", 8.0),
        ("lamp", 11.0),
    ]
    assert sorted((r["item"], r["price"]) for r in found["high"]) == [("lamp", 9), ("lamp", 11)]
    assert rows(tmp_path, "late.jsonl") == []


def ran(runtime: str, root: Path, address: str) -> dict[str, list[dict[str, Any]]]:
    """Run until all answers are there, then stop."""
    command = [sys.executable, "-m", "headrace.cli", "run", "pipeline.toml", "--runtime", runtime]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "BROKERS": address}
    with open(root / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=root, env=env, stdout=log, stderr=log, start_new_session=True)
    deadline, expected = time.monotonic() + PATIENCE, {"minutes": 3, "means": 3, "high": 2}
    try:
        while any(len(rows(root, f"{name}.jsonl")) < count for name, count in expected.items()):
            assert process.poll() is None, (root / "log").read_text()[-3000:]
            assert time.monotonic() < deadline, (root / "log").read_text()[-3000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return {name: rows(root, f"{name}.jsonl") for name in expected}
