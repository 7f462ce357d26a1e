"""A past in files, and then a topic: the answers of one stream, wherever it is cut and a run dies."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

from examples.kafka.broker import Broker
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.kafka.embedded import new_topic, produce
from tests.runtimes.embedded.running import break_down

FILE = """
[pipeline]
name = "seam"
runtime = "embedded"
checkpoint = "state"
interval = "1 hour"
every_rows = 30
[streams.s]
source = {source}
schema = "id BIGINT, k BIGINT, at BIGINT"
time = {{ column = "at", unit = "s" }}
bounds = {{ disorder = "5 s" }}
[[queries]]
name = "rows"
sql = "SELECT id, at FROM s"
sink = "rows.jsonl"
late = "late.jsonl"
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, sum(id) AS s FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k"
sink = "counts.jsonl"
"""
OUTPUTS = ("rows", "counts", "late")


def outputs(root: Path, source: str, stops: list[int]) -> dict[str, list[str]]:
    """All outputs of a run that breaks down after these numbers of steps, without a commit, and continues."""
    (root / "pipeline.toml").write_text(FILE.format(source=source))
    break_down(root / "pipeline.toml", stops)
    assert Runner(load(root / "pipeline.toml")).run().state == "finished"
    return {name: sorted((root / f"{name}.jsonl").read_text().splitlines()) for name in OUTPUTS}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("by_time", [True, False], ids=["by time", "by position"])
@pytest.mark.parametrize("seed", range(3))
def test_files_and_then_kafka_are_one_stream(
    shared: Broker, tmp_path: Path, seed: int, by_time: bool
) -> None:
    """Rows are out of order around the cut. By time, both have rows of the other side."""
    rng = random.Random(seed)
    rows = [{"id": i, "k": i % 3, "at": max(0, i // 4 - rng.randint(0, 4))} for i in range(240)]
    cut = rng.randint(5, 50)
    place = rng.randint(60, 180)
    topic = new_topic(shared.address, 2)
    live = [row for row in rows if row["at"] >= cut - 9] if by_time else rows[place:]
    past = [row for row in rows if row["at"] < cut + 9] if by_time else rows[:place]
    produce(shared.address, topic, ({"value": json.dumps(row), "partition": 1} for row in live))
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    if by_time:
        rows = [r for r in rows if r["at"] < cut] + [r for r in rows if r["at"] >= cut]
    write(tmp_path / "whole/all.jsonl", rows)
    write(tmp_path / "cut/past.jsonl", past)
    whole = outputs(tmp_path / "whole", '"all.jsonl"', [])
    source = (
        '{ history = { path = "past.jsonl", block_bytes = 400 }, live = { type = "kafka", follow = false, '
        f'servers = "{shared.address}", topic = "{topic}", block_rows = 20 }}'
        f"{f', until = 1970-01-01T00:00:{cut:02}Z' if by_time else ''} }}"
    )
    found = outputs(tmp_path / "cut", source, rng.sample(range(1, 30), 4))
    assert found == whole
    assert found["late"] == []
    assert found["counts"]
