"""A small pipeline, and one thing that goes wrong at one operation: the next run makes it good."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.disk import Fault
from tests.simulation.pipelines import PLAIN, Maker, Plan, Stream
from tests.simulation.world import World, simulate

QUERIES = """
[[queries]]
name = "all_a"
sql = "SELECT id FROM a"
sink = "out/all_a.jsonl"
late = "out/late_a.jsonl"
rejected = "out/rejected_a.jsonl"

[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"
sink = "out/counts.parquet"
"""
HEAD = PLAIN + 'checkpoint = "state"\ninterval = "1 hour"\nevery_rows = 5\nrecord = "record"\n'


def plan() -> Plan:
    stream = Stream("a", "folder", "json", 300, wide=False)
    stream.files["1.jsonl"] = Maker(Random(3)).rows(9, bad=0.2)
    return Plan(
        [stream], HEAD, QUERIES, ["all_a.jsonl", "late_a.jsonl", "rejected_a.jsonl", "counts.parquet"]
    )


def operations() -> int:
    found: list[int] = []
    simulate(0, lambda world: found.append(world.operations(plan())))
    return found[0]


def suffer(fault: Fault, at: int) -> None:
    def story(world: World) -> None:
        world.suffer(plan(), fault, at)

    simulate(at, story)


@pytest.mark.parametrize(
    "fault",
    [Fault("kill", torn=True), Fault("power", torn=True)],
    ids=["kill", "power"],
)
def test_any_operation_may_be_the_one_that_goes_wrong(fault: Fault) -> None:
    for at in range(1, operations() + 1):
        suffer(fault, at)
