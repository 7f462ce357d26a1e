"""`reoptimize` in a pipeline file: joins and conditions change their order, are shown, and answer alike."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from headrace.cli.view import as_table
from headrace.cli.why import reasons
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner

STREAM = """
[streams.{name}]
source = {{ type = "poisson", rate = 1000, rows = 900, keys = {keys}, seed = {seed} }}
schema = "key BIGINT, value DOUBLE, time TIMESTAMP"
time = {{ column = "time" }}
bounds = {{ disorder = 0 }}
"""
TEXT = '''
[pipeline]
name = "joins"
runtime = "embedded"
checkpoint = "checkpoint-{reoptimize}"
reoptimize = {reoptimize}
{streams}
[[queries]]
name = "q"
sql = """SELECT a.value AS v, b.value AS w, c.value AS x
  FROM a [RANGE 1 MINUTE] a, b [RANGE 1 MINUTE] b, c [RANGE 1 MINUTE] c
  WHERE a.key = b.key AND floor(b.value * 3000) = floor(c.value * 3000)"""
sink = "out-{reoptimize}.jsonl"
'''


def run(root: Path, reoptimize: str) -> tuple[Progress, list[str]]:
    streams = "".join(STREAM.format(name=n, keys=2, seed=i) for i, n in enumerate("abc"))
    pipeline = parse(TEXT.format(reoptimize=reoptimize, streams=streams), root=root)
    progress = Runner(pipeline).run().progress
    rows = [json.loads(line) for line in (root / f"out-{reoptimize}.jsonl").read_text().splitlines()]
    return progress, sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_the_order_follows_the_data_and_is_shown(tmp_path: Path) -> None:
    fixed, expected = run(tmp_path, "false")
    moved, answers = run(tmp_path, "200")
    assert answers == expected
    assert not fixed.orders
    assert "b ⋈ c ⋈ a since" in moved.orders["q"]
    status = asdict(moved)
    assert any("in another order than planned" in line for line in reasons(status))
    shown = io.StringIO()
    Console(file=shown, width=200).print(as_table(status))
    assert "b ⋈ c ⋈ a" in shown.getvalue()
