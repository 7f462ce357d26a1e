"""How a pipeline runs changes no answer, and may change at a restart: the answers are the oracle's."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline import Pipeline, parse
from headrace.runtimes.embedded import Runner
from headrace.testing import oracle
from tests.laws import effort

TEXT = """
[pipeline]
name = "p"
runtime = "embedded"
checkpoint = "state"
{pipeline}

[streams.a]
source = "a.jsonl"
schema = "id BIGINT, k BIGINT, at BIGINT, came BIGINT"
time = {{ column = "at", unit = "tick" }}
bounds = {a}
arrival = "came"
idle = "{idle}"

[streams.b]
source = "b.jsonl"
schema = "id BIGINT, k BIGINT, at BIGINT, came BIGINT"
time = {{ column = "at", unit = "tick" }}
bounds = {b}
arrival = "came"

[skew]
timeout = 40
{skew}

[[queries]]
name = "joined"
sql = "SELECT x.id AS x, y.id AS y FROM a [RANGE 6] AS x, b [RANGE 9] AS y WHERE x.k = y.k AND x.id > 2"
sink = {{ path = "joined.jsonl", time = "t" }}
late = "late.jsonl"

[[queries]]
name = "both"
sql = "SELECT k, count(*) AS n FROM (SELECT k FROM a UNION ALL SELECT k FROM b) [RANGE 5] GROUP BY k"
sink = {{ path = "both.jsonl", time = "t" }}
"""

BOUNDS = (
    ('{ disorder = "3 ticks" }', "{ disorder = 2, latency = 9 }", ""),
    ('{ slack = "2 rows", transit = 3 }', "{ latency = 8 }", "tick = 2"),
    ("{}", "{ skew = 4 }", 'bounds = [{ of = "b", on = "a", pairs = [[0, 9], ["3 rows", 4]] }]'),
    ("{}", "{}", "estimate = { horizon = 9, tick = 3, window = 4, adjust = true }"),
)
WAYS = st.fixed_dictionaries(
    {
        "strategy": st.sampled_from(["auto", "dfs", "bfs(3)", "rr", "chain(auto)", "edf"]),
        "level": st.sampled_from(["operator", "query", "memory"]),
        "propagation": st.sampled_from(["direct", "in_band"]),
    }
)
IDLE = st.sampled_from(["on_demand", "none", "periodic(4 ticks)"])


def write_rows(root: Path, seed: int) -> dict[str, list[dict[str, int]]]:
    """Rows of two streams as they came; `b` falls silent for a while."""
    rng = random.Random(seed)
    made: dict[str, list[dict[str, int]]] = {"a": [], "b": []}
    for i in range(24):
        name = "a" if 8 < i < 16 else rng.choice("ab")
        came = 2 * i + rng.randint(0, 1)
        at = came - rng.choice((0, 0, 1, 2, 3, 7))
        made[name].append({"id": i, "k": rng.randint(0, 2), "at": at, "came": came})
    for name, rows in made.items():
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def pipeline(root: Path, bounds: tuple[str, str, str], way: dict[str, str], idle: str) -> Pipeline:
    keys = "\n".join(f'{key} = "{value}"' for key, value in way.items())
    a, b, skew = bounds
    return parse(TEXT.format(pipeline=keys, a=a, b=b, skew=skew, idle=idle), root=root)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@effort(0.5, "each example starts two runs")
@given(st.data())
def test_how_a_pipeline_runs_changes_no_answer_and_may_change_at_a_restart(data: st.DataObject) -> None:
    bounds = data.draw(st.sampled_from(BOUNDS))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = write_rows(root, data.draw(st.integers(0, 2**32)))
        first = pipeline(root, bounds, data.draw(WAYS), data.draw(IDLE))
        Runner(first).run(max_steps=data.draw(st.integers(1, 20)))
        second = pipeline(root, bounds, data.draw(WAYS), data.draw(IDLE))
        assert Runner(second).run().state == "finished"
        late = {json.loads(row["row"])["id"] for row in lines(root / "late.jsonl")}
        taken = {
            name: [(row["at"], row) for row in each if row["id"] not in late] for name, each in rows.items()
        }
        for query in second.queries:
            found = Counter(tuple(row.values()) for row in lines(root / f"{query.name}.jsonl"))
            expected = Counter((*row, t) for t, row in oracle.stream(query.query.plan, taken))
            assert found == expected, query.name


def test_options_change_when_answers_come_and_a_change_of_bounds_keeps_the_state(tmp_path: Path) -> None:
    """The bounds of `a` may change at a restart too: watermarks do not go back, and no state is lost."""
    rows = write_rows(tmp_path, 5)
    usual = {"strategy": "auto", "level": "operator", "propagation": "direct"}
    Runner(pipeline(tmp_path, BOUNDS[1], usual, "on_demand")).run(max_steps=9)
    other = BOUNDS[0][0], BOUNDS[1][1], "tick = 1"
    again = Runner(pipeline(tmp_path, other, usual | {"level": "query"}, "periodic(4 ticks)"))
    result = again.run()
    (said,) = [each for each in result.progress.messages if "has changed" in each]
    assert "the restart keeps joined, both" in said
    account = result.progress.streams
    assert sum(each.rows_in for each in account.values()) == sum(map(len, rows.values()))
