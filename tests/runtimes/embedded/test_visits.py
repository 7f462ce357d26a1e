"""What an instant costs: it follows the streams that have rows then, not those that exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.graph.source import SourceNode
from headrace.operators.order import AnyOrder, InputManager
from headrace.pipeline import parse
from headrace.runtimes.embedded import Runner
from headrace.runtimes.embedded.inflow import Inflow

ROWS = 320
STREAM = """
[streams.s{n}]
source = "s{n}.csv"
schema = "arr BIGINT, ts BIGINT, key STRING"
time = {{ column = "ts", unit = "ms" }}
arrival = "arr"
bounds = {{ {bound} }}
"""
UNION = " UNION ALL ".join
ONE_BY_ONE = "SELECT key, count(*) AS n FROM s{n} [RANGE 3 SECONDS] GROUP BY key"
VISITS = ((Inflow, "take"), (SourceNode, "demand"), (SourceNode, "tick"), (InputManager, "needs"))


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often streams, sources and the operators that put their rows in order were looked at."""
    counted: Counter[str] = Counter()

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            counted[name] += 1
            return function(self, *arguments, **named)

        return call

    for owner, name in VISITS:
        monkeypatch.setattr(owner, name, counting(name, getattr(owner, name)))
    more = AnyOrder.more.fget
    assert more is not None
    monkeypatch.setattr(AnyOrder, "more", property(counting("more", more)))
    return counted


def recorded(streams: int, bound: str, queries: list[str]) -> str:
    """A pipeline over files whose rows come one at an instant, each on another stream."""
    text = '[pipeline]\nname = "many"\nruntime = "embedded"\n'
    for n in range(streams):
        rows = [f"{i},{i - i % 3},k{i % 7}" for i in range(1000 + n, 1000 + ROWS, streams)]
        Path(f"s{n}.csv").write_text("\n".join(["arr,ts,key", *rows]) + "\n")
        text += STREAM.format(n=n, bound=bound)
    for i, sql in enumerate(queries):
        text += f'[[queries]]\nname = "q{i}"\nsql = "{sql}"\nsink = "out{streams}-{i}.jsonl"\n'
    return text


@pytest.mark.parametrize("kind", ["a union of all", "a query for each"])
def test_an_instant_visits_the_streams_that_have_rows_then(
    kind: str, visits: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each instant visited every stream, source and operator several times: 27 ms with 256 of them."""
    monkeypatch.chdir(tmp_path)
    work = {}
    for streams in (4, 32):
        one = [ONE_BY_ONE.format(n=n) for n in range(streams)]
        union = [UNION(f"SELECT ts, key FROM s{n}" for n in range(streams))]
        queries = union if kind == "a union of all" else one
        visits.clear()
        result = Runner(parse(recorded(streams, f"disorder = '{5 * streams} ms'", queries))).run()
        assert sum(each.rows_late for each in result.progress.streams.values()) == 0
        work[streams] = sum(visits.values()) / ROWS
    assert work[32] < 1.5 * work[4] + 2
