"""What extremes of text cost: comparisons of values, counted, for ever more different values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.aggregates import forest, session_values
from headrace.aggregates.panes import values as pane_blocks
from headrace.engine import Engine
from headrace.kernels import aggregate_panes, aggregate_trees, sort_keys
from headrace.sql import Catalog, query

TEXT = Catalog({"s": pa.schema([("k", pa.string())])}, ticks_per_second=None)
PLACES = {
    pane_blocks: ("lower", "prefix_least", "suffix_least", "join_least"),
    session_values: ("lower",),
    forest: ("change_all", "run_trees", "match_copies"),
    aggregate_trees: ("_change", "_insert", "_remove", "_hang", "_end"),
}
"""Where kernels are called: they run as Python here, so that what they call can be counted."""


class Comparisons:
    """How often two words were compared."""

    count = 0


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> Comparisons:
    counted, less = Comparisons(), sort_keys.less.py_func

    def counting(a: int, b: int, order: sort_keys.Order) -> Any:
        counted.count += 1
        return less(a, b, order)

    for module, names in PLACES.items():
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name).py_func)
    for kernels in (aggregate_panes, aggregate_trees):
        monkeypatch.setattr(kernels, "less", counting)
    return counted


ORDERS: dict[str, Callable[[int], list[str]]] = {
    "any order": lambda n: random.Random(1).sample([f"{i:06}" for i in range(n)], n),
    "ascending below a greater one": lambda n: ["z", *(f"{i:06}" for i in range(n))],
    "descending": lambda n: [f"{i:06}" for i in range(n, 0, -1)],
    "alike in their first bytes": lambda n: [f"a long beginning {i:06}" for i in range(n)],
}


CALLS: dict[str, Callable[[list[str]], Any]] = {
    "min(k)": min,
    "max(k)": max,
    "first(k)": lambda keys: keys[0],
    "last(k)": lambda keys: keys[-1],
    "count(DISTINCT k)": len,
}


def asked(call: str, window: str, keys: list[str], chunk: int = 64) -> Any:
    """The last answer, for rows that come in pieces."""
    engine, schema = Engine(now=-1), TEXT.streams["s"].schema
    engine.add("q", query(f"SELECT {call} AS m FROM s {window}", TEXT).plan)
    for i in range(0, len(keys), chunk):
        batch = pa.record_batch([pa.array(keys[i : i + chunk])], schema=schema)
        engine.push("s", batch, list(range(i, i + batch.num_rows)))
        engine.run()
    engine.streams.heartbeat("s", len(keys))
    if "SLIDE" in window or "SESSION" in window:
        engine.streams.end("s")
    return engine.drain("q")[-1].data.column("m")[-1].as_py()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", ["[RANGE 100000 SLIDE 100000]", "[SESSION 10]", "[RANGE 100000]"])
def test_a_text_costs_the_same_however_many_different_ones_are_held(
    window: str, order: str, call: str, comparisons: Comparisons
) -> None:
    """Each new text was put into a sorted list: the cost of a row grew with the texts held."""
    work = {}
    for size in (256, 1024):
        comparisons.count, keys = 0, ORDERS[order](size)
        assert asked(call, window, keys) == CALLS[call](keys)
        work[size] = comparisons.count
    by_pane = window != "[RANGE 100000]"
    assert work[1024] <= (1100 if by_pane else 6 * work[256])
