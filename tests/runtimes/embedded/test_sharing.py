"""Queries of a pipeline that start together share operators, also after a restart and a change."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.control import Resize
from headrace.control.apply import resized
from headrace.engine import Engine
from headrace.pipeline import load
from headrace.pipeline.sharing import start_together, with_shared_plans
from headrace.runtimes.embedded import Runner

FILE = """
[pipeline]
name = "shared"
runtime = "embedded"
checkpoint = "state"
every_rows = 50

[streams.s]
source = {{ path = "s.jsonl", block_bytes = 500 }}
schema = "k BIGINT, v BIGINT, w BIGINT, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ disorder = "0 s" }}
{queries}
"""
PAIRS = (
    "SELECT a.v, b.w FROM s [RANGE MIN 5 TICKS, MAX 9 TICKS] a, s [RANGE MIN 5 TICKS, MAX 9 TICKS] b "
    "WHERE a.k = b.k"
)
NARROW = "SELECT w FROM s [RANGE MIN 2 TICKS, MAX 8 TICKS]"
QUERIES = {
    "sums": "SELECT k, sum(v) AS x FROM s [RANGE 100 TICKS SLIDE 50 TICKS] GROUP BY k",
    "most": "SELECT k, max(w) AS x FROM s [RANGE 100 TICKS SLIDE 50 TICKS] GROUP BY k",
    "rows": "SELECT k, count(*) AS n FROM s [PARTITION BY k ROWS 3] GROUP BY k",
    "last": "SELECT w FROM s [PARTITION BY k ROWS 3]",
}


def written(root: Path, names: list[str], texts: Mapping[str, str] = QUERIES) -> Path:
    """The pipeline with some of the queries, and its input."""
    root.mkdir(exist_ok=True)
    lines = [json.dumps({"k": i % 3, "v": i * 7 % 5, "w": i, "at": i * 3}) for i in range(400)]
    (root / "s.jsonl").write_text("\n".join(lines) + "\n")
    tables = [f'[[queries]]\nname = "{n}"\nsql = "{texts[n]}"\nsink = "{n}.jsonl"' for n in names]
    (root / "pipeline.toml").write_text(FILE.format(queries="\n\n".join(tables)))
    return root / "pipeline.toml"


def rows(root: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / f"{name}.jsonl").read_text().splitlines()]


def kinds_of(engine: Engine) -> Counter[str]:
    return Counter(type(node.plan).__name__ for node in engine.graph.nodes)


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """The answers of each query in a pipeline of its own."""
    for name in QUERIES:
        Runner(load(written(tmp_path / f"alone_{name}", [name]))).run()
    return {name: rows(tmp_path / f"alone_{name}", name) for name in QUERIES}


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether the answers are equal, apart from the order within an instant."""
    return sorted(map(str, one)) == sorted(map(str, other))


def test_queries_share_windows_and_aggregates_and_answer_as_each_alone(
    tmp_path: Path, alone: dict[str, list[dict[str, Any]]]
) -> None:
    runner = Runner(load(written(tmp_path / "all", list(QUERIES))))
    runner.run()
    found = kinds_of(runner.engine)
    assert (found["Window"], found["UnsortedWindows"], found["Aggregate"]) == (1, 1, 1)
    for name, expected in alone.items():
        assert expected
        assert same(rows(tmp_path / "all", name), expected)


def test_a_restart_goes_on_with_the_state_of_shared_nodes(
    tmp_path: Path, alone: dict[str, list[dict[str, Any]]]
) -> None:
    file = written(tmp_path / "all", list(QUERIES))
    states = [Runner(load(file)).run(max_steps=3).state]
    while states[-1] != "finished":
        states.append(Runner(load(file)).run(max_steps=3).state)
    assert len(states) > 3
    for name, expected in alone.items():
        assert same(rows(tmp_path / "all", name), expected)


def test_plans_follow_from_the_queries_that_started_together(tmp_path: Path) -> None:
    every = load(written(tmp_path, list(QUERIES)))
    fewer = load(written(tmp_path, ["rows", "sums"]))
    began = {each.name: each.query.plan for each in with_shared_plans(every, start_together(every)).queries}
    after = {each.name: each.query.plan for each in with_shared_plans(fewer, start_together(every)).queries}
    own = {each.name: each.query.plan for each in with_shared_plans(fewer, start_together(fewer)).queries}
    assert after == {name: began[name] for name in ("rows", "sums")}
    assert own == {each.name: each.query.plan for each in fewer.queries} != after


def test_explain_shows_that_a_node_is_shared(tmp_path: Path) -> None:
    runner = Runner(load(written(tmp_path, ["sums", "most"])))
    engine = runner.build_engine()
    for name in ("sums", "most"):
        assert "aggregate max(w) AS max, sum(v) AS sum by k from panes" in str(engine.explain(name))
    assert kinds_of(engine)["UnsortedWindows"] == 1


def test_a_command_finds_each_window_of_a_query_in_the_plan_that_it_shares(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path, ["pairs", "narrow"], {"pairs": PAIRS, "narrow": NARROW}))
    runner = Runner(pipeline)
    engine = runner.build_engine()
    assert kinds_of(engine)["Window"] == 1
    for window in ("s", "s#2"):
        assert resized(pipeline, Resize("pairs", "6 ticks", of=window))[1] == 6
        node, size, at = resized(runner.pipeline, Resize("pairs", "6 ticks", of=window))
        engine.quality.resize(node, size, at=at, query="pairs")
    (setting,) = engine.quality.settings()
    assert (setting.least, setting.most, setting.value) == (5, 8, 6)
