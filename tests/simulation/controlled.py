"""A pipeline that gets commands between its lives and during them, from a writer that may die too.

Commands do not touch the queries of the file, so their outputs are those of a run that nothing happened to.
What the queries of the log gave is what a replay of the committed steps gives.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from headrace.control import AddQuery, Command, RemoveQuery, SetLevel, SetStrategy, log_of, submit
from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded.record import Recorded
from headrace.runtimes.embedded.runner import replay
from tests.simulation.disk import Fault, SimulatedCrash, SimulatedDisk
from tests.simulation.pipelines import bags, read_output
from tests.simulation.world import Violation, World

TEXTS = (
    "SELECT id FROM a",
    "SELECT k, count(*) AS n FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "SELECT k, sum(v) AS v FROM a [RANGE 3 SECONDS] GROUP BY k",
)


@dataclass
class Writer:
    """Writes commands; the log says whether one that was not acknowledged counts."""

    world: World
    left: list[Command]
    running: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    written: int = 0
    unsure: Command | None = None
    """The last command, if it is in the log but was not acknowledged: a loss of power may take it."""

    def write(self) -> None:
        """Write the next command, whatever happens to the run."""
        if self.left:
            submit(load(self.world.root / "p.toml"), self.left[0])
            self.unsure = None
            self._is_written()

    def _is_written(self) -> None:
        command = self.left.pop(0)
        self.written += 1
        self.world.say(f"command {self.written}: {command}")

    def write_and_die(self, rng: Random) -> None:
        """A process that writes the next command and may be killed, or lose power, while it does."""
        disk = self.world.disk
        disk.start({rng.randint(1, 16): Fault(rng.choice(("kill", "power")), torn=True)})
        with self.world._inside(disk):
            try:
                self.write()
            except SimulatedCrash:
                self.world.say(f"a writer: {'; '.join(disk.met)}")
            lost_power = disk.lost_power
            disk.die()
            if lost_power:
                self.world.lost_power = True
                disk.lose_power()
        if self.look() > self.written:
            self.unsure = self.left[0]
            self._is_written()

    def look(self) -> int:
        """How many commands the log has; one that was not acknowledged or committed may be gone."""
        found = len(log_of(load(self.world.root / "p.toml")).read())
        if self.unsure is not None and found == self.written - 1 and self.world.lost_power:
            self.world.say(f"command {self.written} is lost with the power")
            self.left.insert(0, self.unsure)
            self.unsure, self.written = None, found
        commit = max(self.world.root.glob("state/commit-*[0-9]"), default=None)
        body = {} if commit is None else json.loads(commit.read_bytes().partition(b"\n")[2])
        if body.get("commands", 0) > found:
            raise Violation(f"{body['commands']} commands are committed, and the log has {found}")
        return found


def commands(rng: Random) -> tuple[list[Command], list[str]]:
    """Commands that are good one after the other, and the outputs that they open."""
    found: list[Command] = []
    running: list[str] = []
    outputs: list[str] = []
    for i in range(rng.randint(1, 6)):
        kind = rng.choice(("add", "add", "remove", "strategy", "level"))
        if kind == "strategy":
            found.append(SetStrategy(rng.choice(("bfs", "rr", "dfs(1)"))))
        elif kind == "level":
            found.append(SetLevel(rng.choice(("query", "operator"))))
        elif kind == "remove" and running:
            found.append(RemoveQuery(running.pop(rng.randrange(len(running)))))
        else:
            running.append(f"x{i}")
            outputs.append(f"x{i}.{rng.choice(('jsonl', 'csv', 'parquet'))}")
            found.append(AddQuery(f"x{i}", rng.choice(TEXTS), f"out/{outputs[-1]}"))
    return found, outputs


def controlled(world: World) -> None:
    """One seed."""
    rng = world.rng
    plan = world.maker.plan(("file", "folder"), wide=False)
    if "record =" not in plan.head:
        plan.head += 'record = "record"\n'
    world._settle(plan)
    expected, operations = world.undisturbed(plan)
    left, outputs = commands(rng)
    writer = Writer(world, left)
    for _ in range(rng.choice((1, 2, 2, 3))):
        if rng.random() < 0.5:
            writer.write_and_die(rng)
        moments = {rng.randint(1, 2 * operations) for _ in range(2)}

        def during(name: str, path: Path, moments: set[int] = moments) -> None:
            """The writer is another process: it runs between two operations of this one."""
            if world.disk.count in moments:
                moments.discard(world.disk.count)
                world.disk.watch = None
                with world.disk.healthy():
                    writer.write()
                world.disk.watch = during

        world.watching = during
        outcome = world._life(world._faults(2 * operations))
        writer.look()
        if outcome == "finished":
            break
        world._between()
    world.watching = None
    world._life({}, must_finish=True)
    world._same(expected, bags(world.root, plan))
    world._exactly_once()
    _judge(world, writer, outputs)


def _judge(world: World, writer: Writer, outputs: list[str]) -> None:
    """Every command is in the log once, was applied at most once and in order, and had its effect."""
    entries = log_of(load(world.root / "p.toml")).read()
    if len(entries) != writer.written or any(entry.refused for entry in entries):
        raise Violation(f"{writer.written} commands were written, and the log has {entries}")
    if world.lost_power:
        return
    try:
        steps = [step for commit in Recorded(world.root / "record").commits() for step in commit]
        with world._inside(SimulatedDisk(Random(0))):
            replay(world.root / "record", world.home / "replayed")
    except HeadraceError as error:
        raise Violation(f"the recorded run: {error}") from error
    applied = [entry.number for step in steps for entry in step.commands]
    if applied != list(range(1, len(applied) + 1)):
        raise Violation(f"commands were applied in the order {applied}")
    for name in outputs:
        found, wanted = (
            Counter(map(str, read_output(each / name)))
            for each in (world.root / "out", world.home / "replayed")
        )
        if found != wanted:
            raise Violation(f"{name}: missing {wanted - found}, too many {found - wanted}")
