"""NEXMark on Spark gives the rows of the embedded engine, and so do partitioners and hosts without Spark.

The embedded engine's rows are the oracle's in `tests/examples/test_nexmark.py`. Events are out of order and
no auction is opened for a tenth of the time. Two queries run in the default suite, all of them with `make
soak` and in `headrace bench nexmark --runtime spark`.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks import nexmark_runs as runs
from examples.nexmark import NAMES, load
from tests.spark.conftest import played
from tests.spark.simulated import Cluster, MicroBatch, embedded, on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, FEW = 3_000, 1_000
QUICK = ("q8", "q4")
"""Windows that are joined, and two parts by different keys."""
REST = [name for name in NAMES if name not in QUICK]

one_shard = pytest.mark.filterwarnings("ignore:one shard:headrace.errors.HeadraceWarning")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexmark")
    runs.write_files(folder, runs.house(EVENTS), EVENTS)
    return folder


@one_shard
@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in REST)])
def test_a_query_of_nexmark_gives_the_same_rows_on_spark(spark: SparkSession, files: Path, name: str) -> None:
    house = runs.house(EVENTS)
    expected = runs.embedded(name, house, EVENTS).answers
    assert expected.num_rows
    found = runs.on_spark(spark, name, files, house, played).answers
    assert runs.rows_of(found) == runs.rows_of(expected)


def micro_batches() -> list[MicroBatch]:
    """What arrives in each, as the partitioners take it; the clock is that of the last row."""
    house = runs.house(FEW)
    made = []
    for begin, count in runs.steps(FEW):
        rows = house.batches(begin, count)
        now = max(int(each.arrivals.max()) for each in rows.values() if len(each))
        made.append((now, {s: (each.data, each.times.astype(object)) for s, each in rows.items()}))
    return made


@one_shard
@pytest.mark.parametrize("name", NAMES)
def test_a_query_of_nexmark_gives_the_same_rows_divided_among_shards(name: str) -> None:
    """On workers that come and go, with tasks that fail and are made again."""
    plan, inputs, batches = load(name).plan, runs.inputs(runs.house(FEW)), micro_batches()
    wanted = {source.name for source in load(name).sources}
    batches = [(now, {s: rows for s, rows in arrived.items() if s in wanted}) for now, arrived in batches]
    spread = on_spark(plan, inputs, batches, {}, 2, Cluster(random.Random(1)), ends=True)
    whole = embedded(plan, inputs, batches, {}, ends=True)
    assert whole.answers
    assert not whole.late
    assert Counter(map(repr, spread.answers)) == Counter(map(repr, whole.answers))
