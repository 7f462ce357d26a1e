"""A pipeline whose state is larger than its budget: the same answers, through stops and starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace import tuning
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner

TEXT = """
[pipeline]
name = "large"
runtime = "embedded"
checkpoint = "state"
every_rows = 3000

[streams.a]
source = { path = "a.jsonl", block_rows = 500, block_bytes = 20000 }
schema = "k BIGINT, v STRING, at BIGINT"
time = "at"

[streams.b]
source = { path = "b.jsonl", block_rows = 500, block_bytes = 20000 }
schema = "k BIGINT, v STRING, at BIGINT"
time = "at"

[[queries]]
name = "pairs"
sql = "SELECT a.k, a.v, b.v AS w FROM a [RANGE 1 HOUR] AS a, b [RANGE 1 HOUR] AS b WHERE a.k = b.k"
sink = "pairs.jsonl"
"""
MEMORY = """
[memory]
budget = "300 kB"
policy = "spill"
spill = "spilled"
"""


def write_rows(root: Path) -> None:
    root.mkdir()
    for stream, step in (("a", 7), ("b", 11)):
        rows = ({"k": i * step % 3001, "v": f"{stream} {i}", "at": 10**15 + i} for i in range(8000))
        (root / f"{stream}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def answers(root: Path, text: str, stop: int | None = None) -> tuple[list[str], list[Progress]]:
    seen: list[Progress] = []
    runner = Runner(parse(text, root=root))
    runner.run(on_progress=seen.append, every=0.0, max_steps=stop)
    return sorted((root / "pairs.jsonl").read_text().splitlines()), seen


@pytest.mark.parametrize("stops", [(), (9, 13)])
def test_a_state_beyond_the_budget_is_on_disk_and_the_answers_are_the_same(
    tmp_path: Path, stops: tuple[int, ...]
) -> None:
    write_rows(tmp_path / "held")
    write_rows(tmp_path / "spilled")
    expected, held = answers(tmp_path / "held", TEXT)
    with tuning.using(spill_file_bytes=1 << 14):
        for stop in stops:
            answers(tmp_path / "spilled", TEXT + MEMORY, stop)
        found, seen = answers(tmp_path / "spilled", TEXT + MEMORY)
    assert found == expected
    assert max(p.spilled_bytes for p in seen) > 300_000
    assert max(p.state_bytes for p in held) > 2_000_000
    assert list((tmp_path / "spilled" / "spilled").glob("headrace-spill-*")) == [], "nothing is left behind"
