"""The control log: numbered without gaps, complete or not there, never damaged in silence."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk
from headrace.control import (
    AddQuery,
    Command,
    Heartbeat,
    Log,
    Pause,
    Punctuate,
    Reload,
    RemoveQuery,
    Resize,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    Stop,
)
from headrace.control.commands import KINDS, describe, from_json, to_json
from headrace.errors import ControlError, GraphError
from tests.simulation.disk import Fault, SimulatedCrash, SimulatedDisk

EXAMPLES: list[Command] = [
    AddQuery("hot", "SELECT a FROM s", {"path": "hot.jsonl", "existing": "append"}, late="late.jsonl"),
    RemoveQuery("hot"),
    Pause("hot"),
    Resume("hot"),
    Reload("items", "2024-05-01T00:00:00Z", "0123-45"),
    Resize("hot", "2 h", of="bids", since="2024-05-01T00:00:00Z"),
    SetBudget("64 MB", "spill"),
    SetBudget(None),
    SetStrategy("bfs"),
    SetStrategy("chain", "hot"),
    SetLevel("memory"),
    SetBounds("bids", {"latency": "1 min", "guard": None}),
    Punctuate("bids", {"auction": {"is": 7}, "note": {"in": ["a", None]}}, until=12),
    Heartbeat("bids", 5),
    Stop(),
]


def test_every_kind_of_command_has_an_example() -> None:
    assert {type(each) for each in EXAMPLES} == set(KINDS.values())


@pytest.mark.parametrize("command", EXAMPLES, ids=describe)
def test_what_is_written_is_read(command: Command, tmp_path: Path) -> None:
    assert from_json(json.loads(json.dumps(to_json(command)))) == command
    entry = Log(tmp_path / "control").append(command, replaces="abc")
    assert Log(tmp_path / "control").read() == [entry]
    assert (entry.number, entry.replaces) == (1, "abc")


@pytest.mark.parametrize(
    ("written", "code"),
    [({"kind": "dance"}, "HR-L003"), ({"kind": "stop", "now": 1}, "HR-L003"), ({"kind": "level"}, "HR-L009")],
)
def test_a_command_of_another_version_is_named(written: dict[str, object], code: str) -> None:
    with pytest.raises(ControlError) as refused:
        from_json(written, "00000001.json")
    assert (refused.value.code, refused.value.place) == (code, "00000001.json")


def test_commands_are_read_in_order_and_from_a_number_on(tmp_path: Path) -> None:
    log = Log(tmp_path / "control")
    assert log.read() == []
    for command in EXAMPLES:
        log.append(command)
    assert [entry.command for entry in log.read()] == EXAMPLES
    assert [entry.number for entry in log.read(since=3, until=5)] == [4, 5]
    assert log.read(since=len(EXAMPLES)) == []
    names = sorted(path.name for path in log.path.iterdir())
    assert names == [f"{n:08d}.json" for n in range(1, len(EXAMPLES) + 1)]


def test_files_are_private(tmp_path: Path) -> None:
    log = Log(tmp_path / "control")
    log.append(Stop())
    assert oct(log.path.stat().st_mode)[-3:] == "700"
    assert oct((log.path / "00000001.json").stat().st_mode)[-3:] == "600"


def test_a_refusal_stays_with_its_command(tmp_path: Path) -> None:
    log = Log(tmp_path)
    entry = log.append(RemoveQuery("x"))
    log.append(Stop())
    refused = log.refuse(entry, GraphError("HR-G003", "no such query"))
    assert refused.refused == "[HR-G003] no such query"
    assert [each.refused for each in log.read()] == [refused.refused, None]


@given(st.data())
def test_a_damaged_file_is_an_error_that_names_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    log = Log(tmp_path_factory.mktemp("log"))
    log.append(EXAMPLES[0])
    file = log.path / "00000001.json"
    whole = file.read_bytes()
    # Files differ in length by a checksum, and what is drawn must not depend on that.
    at = data.draw(st.integers(0, 1 << 16)) % (len(whole) - 1)
    bit = data.draw(st.integers(0, 7))
    cut = data.draw(st.booleans())
    file.write_bytes(whole[:at] if cut else whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    if _is_same_json(file.read_bytes(), whole):  # only a space became another one
        assert [each.command for each in log.read()] == [EXAMPLES[0]]
        return
    with pytest.raises(ControlError) as damaged:
        log.read()
    assert damaged.value.code in ("HR-L002", "HR-L003")
    assert damaged.value.place == str(file)


def _is_same_json(one: bytes, other: bytes) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _append_many(path: str, who: int, count: int) -> None:
    for i in range(count):
        Log(path).append(RemoveQuery(f"q{who}_{i}"))


def test_two_writers_at_once_both_succeed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    writers = [context.Process(target=_append_many, args=(str(tmp_path), who, 25)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    entries = Log(tmp_path).read()
    assert [entry.number for entry in entries] == list(range(1, 76))
    names = [entry.command.name for entry in entries if isinstance(entry.command, RemoveQuery)]
    for who in range(3):
        assert [name for name in names if name.startswith(f"q{who}_")] == [f"q{who}_{i}" for i in range(25)]


def test_any_operation_of_a_writer_may_be_its_last(tmp_path: Path) -> None:
    """What was acknowledged is there, what was not is complete or absent, and there is no gap."""
    faults = [Fault("kill", torn=True), Fault("power", torn=True), Fault(28, lasting=True)]
    at, done = 0, False
    while not done:
        at += 1
        for number, fault in enumerate(faults):
            path = tmp_path / f"{at}-{number}"
            path.mkdir()
            world = SimulatedDisk(Random(at))
            log, acknowledged = Log(path / "control"), []
            world.start({at: fault})
            with disk.using(world):
                try:
                    for i in range(3):
                        acknowledged.append(log.append(RemoveQuery(f"q{i}")))
                    done = number == len(faults) - 1
                except (SimulatedCrash, ControlError):
                    done = False
            lost_power = world.lost_power
            world.die()
            if lost_power:
                world.lose_power()
            found = log.read()
            assert found[: len(acknowledged)] == acknowledged
            assert len(found) <= len(acknowledged) + 1
            left = [name for name in os.listdir(log.path) if name.endswith(".json")] if found else []
            assert len(left) == len(found)
            assert log.append(Stop()).number == len(found) + 1
