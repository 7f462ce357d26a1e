"""A small pipeline, and one thing that goes wrong at one operation: the next run makes it good."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.simulation.disk import Fault
from tests.simulation.pipelines import PLAIN, Maker, Plan, Stream
from tests.simulation.world import simulate

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
HEAD = PLAIN + 'checkpoint = "state"\ninterval = "1 hour"\nevery_rows = 6\nrecord = "record"\n'


def plan() -> Plan:
    stream = Stream("a", "folder", "json", 300, wide=False)
    stream.files["1.jsonl"] = Maker(Random(3)).rows(9, bad=0.2)
    return Plan(
        [stream], HEAD, QUERIES, ["all_a.jsonl", "late_a.jsonl", "rejected_a.jsonl", "counts.parquet"]
    )


def undisturbed() -> tuple[dict[str, list[str]], int]:
    found: list[tuple[dict[str, list[str]], int]] = []
    simulate(0, lambda world: found.append(world.undisturbed(plan())))
    return found[0]


OTHERS = [Fault(errno.ENOSPC, torn=True, lasting=True), Fault("power", torn=True), Fault("kill", torn=True)]


@pytest.mark.parametrize("faults", [[Fault(errno.EIO)], OTHERS], ids=["error", "crash"])
def test_any_operation_may_be_the_one_that_goes_wrong(faults: list[Fault]) -> None:
    expected, operations = undisturbed()
    for at in range(1, operations + 1):
        fault = faults[at % len(faults)]
        simulate(at, lambda world, at=at, fault=fault: world.suffer(plan(), [{at: fault}], expected))


def test_what_an_error_left_unsynced_survives_the_power_cut_of_the_next_run() -> None:
    """Seed 5259: the names of the first commit were not synced, and the next run did not sync them either."""
    expected, operations = undisturbed()
    for at in range(1, operations + 1):
        lives = [{at: Fault(errno.EIO)}, {40: Fault("power")}]
        simulate(at, lambda world, lives=lives: world.suffer(plan(), lives, expected))
