"""`reoptimize` in a pipeline file: joins and conditions change their order, are shown, and answer alike."""

from __future__ import annotations

import io
import random
from pathlib import Path

from rich.console import Console

from headrace import tuning
from headrace.cli.view import as_table
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner
from headrace.runtimes.why import Why

STREAM = """
[streams.{name}]
source = {{ path = "{name}.csv", block_rows = 25 }}
schema = "few BIGINT, many BIGINT, time BIGINT"
time = {{ column = "time", unit = "tick" }}
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
sql = """SELECT a.time AS s, b.time AS t, c.time AS u
         FROM a [RANGE 1000] a, b [RANGE 1000] b, c [RANGE 1000] c
         WHERE a.few = b.few AND b.many = c.many"""
sink = "out-{reoptimize}.jsonl"
'''


def run(root: Path, reoptimize: str) -> tuple[Progress, list[str]]:
    for i, name in enumerate("abc"):
        rng = random.Random(i)
        rows = [f"{rng.randrange(2)},{rng.randrange(90)},{at}" for at in range(300)]
        (root / f"{name}.csv").write_text("\n".join(["few,many,time", *rows, ""]))
    streams = "".join(STREAM.format(name=name) for name in "abc")
    pipeline = parse(TEXT.format(reoptimize=reoptimize, streams=streams), root=root)
    progress = Runner(pipeline).run().progress
    return progress, sorted((root / f"out-{reoptimize}.jsonl").read_text().splitlines())


@tuning.using(reorder_agreement=1)  # small files are read at one go
def test_the_order_follows_the_data_and_is_shown(tmp_path: Path) -> None:
    fixed, expected = run(tmp_path, "false")
    moved, answers = run(tmp_path, "60")
    assert answers == expected
    assert not fixed.orders
    assert "b ⋈ c ⋈ a since" in moved.orders["q"]
    assert "in another order than planned" in str(Why.of(moved))
    shown = io.StringIO()
    Console(file=shown, width=200).print(as_table(moved))
    assert "b ⋈ c ⋈ a" in shown.getvalue()
