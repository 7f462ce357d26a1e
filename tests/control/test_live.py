"""Live changes: a run that is given commands answers as a plain engine that was given the same ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk, tuning
from headrace.control import Entry, log_of, submit
from headrace.disk import DirectoryLock
from headrace.pipeline import load
from headrace.runtimes.embedded import Progress, Runner
from headrace.runtimes.embedded.record import Recorded
from tests.control.live import Reference, Story, expected, outputs, stories
from tests.simulation.disk import Fault, SimulatedCrash, SimulatedDisk
from tests.simulation.world import Inline


def run(file: Path, story: Story, stops: list[int]) -> list[tuple[int, Entry]]:
    """Run it; each command is written after its number of steps, and the run starts again at each stop."""
    pipeline = load(file)
    left, stops = list(story.commands), sorted(set(stops))
    written: list[tuple[int, Entry]] = []
    steps = 0

    def write(progress: Progress | None = None) -> None:
        while left and left[0][0] <= steps:
            written.append((steps, submit(pipeline, left.pop(0)[1])))

    def count(progress: Progress) -> None:
        nonlocal steps
        if progress.state == "running":
            steps += 1
            write()

    write()
    with tuning.using(control_seconds=0):
        while True:
            most = next((stop - steps for stop in stops if stop > steps), None)
            result = Runner(load(file)).run(on_progress=count, every=0, max_steps=most)
            if result.state == "finished":
                return written
            assert result.state == "stopped"


@given(stories(), st.lists(st.integers(1, 20), max_size=3))
def test_a_run_with_commands_and_restarts_equals_a_plain_engine(
    tmp_path_factory: pytest.TempPathFactory, story: Story, stops: list[int]
) -> None:
    root = tmp_path_factory.mktemp("live")
    file = story.write(root)
    commands = run(file, story, stops)
    assert [entry.refused for entry in log_of(load(file)).read()] == [None] * len(commands)
    wanted = expected(file, commands)
    assert outputs(root, wanted) == wanted


@given(stories(record=True), st.integers(0, 2**32 - 1))
def test_a_run_that_is_killed_at_any_operation_loses_no_command_and_applies_none_twice(
    tmp_path_factory: pytest.TempPathFactory, story: Story, seed: int
) -> None:
    """What was committed is what a plain engine gives for the same steps and commands."""
    root = tmp_path_factory.mktemp("killed")
    file, rng = story.write(root), Random(seed)
    world = SimulatedDisk(rng)
    lives = [{rng.randint(1, 150): rng.choice(FAULTS)} for _ in range(rng.randint(1, 3))]
    written: list[Entry] = []
    left = list(story.commands)
    steps = 0
    for faults in [*lives, {}]:

        def write(progress: Progress | None = None) -> None:
            nonlocal steps
            steps += 1
            with world.healthy():  # the writer is another process
                while left and (left[0][0] <= steps or world.life > len(lives)):
                    written.append(submit(load(file), left.pop(0)[1]))

        outcome = live(world, faults, file, write)
    assert outcome == "finished"
    reference = Reference(load(file))
    for commit in Recorded(root / "record").commits():
        for step in commit:
            for entry in step.commands:
                reference.obey(entry)
            if not step.commands:
                reference.step(step)
    assert [entry.refused for entry in log_of(load(file)).read()] == [None] * len(written)
    applied = [entry.number for entry in reference.applied]
    assert applied == list(range(1, len(applied) + 1))
    assert outputs(root, reference.rows) == reference.rows


FAULTS = [Fault("kill", torn=True), Fault("power", torn=True), Fault("kill")]


def live(world: SimulatedDisk, faults: dict[int, Fault], file: Path, write: Callable[..., None]) -> str:
    """One process, from its start to its end or its crash."""
    world.start(faults)
    with (
        disk.using(world),
        tuning.using(control_seconds=0),
        mock.patch("headrace.connectors.ahead.ThreadPoolExecutor", Inline),
        mock.patch.object(DirectoryLock, "take", taking(world, DirectoryLock.take)),
    ):
        try:
            write()
            outcome = Runner(load(file)).run(on_progress=write, every=0).state
        except SimulatedCrash:
            outcome = "crashed"
    lost_power = world.lost_power
    world.die()
    if lost_power:
        world.lose_power()
    return outcome


def taking(world: SimulatedDisk, take: Callable[..., bool]) -> Callable[..., bool]:
    """A lock goes with its process."""

    def taken(lock: DirectoryLock, *, shared: bool = False) -> bool:
        world.locks.append(lock)
        return take(lock, shared=shared)

    return taken
