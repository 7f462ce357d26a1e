"""One seed: a pipeline, what happens to it and around it, and what must be true in the end.

A life is one process: it runs until it has finished, or a fault ends it. Between lives, and while a source
that has no end is silent, the world changes. In the end:

- each row that was written is answered, late or rejected, once; of a file that changed, all that one of its
  versions had; and each stream's account balances;
- the answers are those of a run that nothing happened to;
- a run that is refused says why with a code, and has changed nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

from headrace import disk as seam
from headrace import tuning
from headrace.connectors.spool import Spool
from headrace.disk import DirectoryLock
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.embedded.runner import replay
from tests.simulation.disk import ERRORS, Fault, SimulatedCrash, SimulatedDisk
from tests.simulation.pipelines import (
    BASE,
    COLUMNS,
    LAST,
    SECOND,
    TABLE,
    Maker,
    Plan,
    Row,
    Stream,
    account,
    bags,
    read_output,
    write_file,
)

MEMORY: Final = Path("/dev/shm")
MOST_IDLE: Final = 400
"""Times that a run may find nothing to do; one that does not end by then hangs."""

DIALS: Final = frozenset(
    {"kill", "power", "errors", "respell", "move", "query", "twice"}
    | {"arrive", "grow", "vanish", "clock", "tcp", "follow", "tail", "rotate", "record"}
)


class Violation(AssertionError):
    """A law that was broken."""


class Inline:
    """A pool of threads without threads: what is given to it is done at once."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self) -> None: ...


class WildTime:
    """The clock of the machine: it stops, jumps, and goes back."""

    def __init__(self) -> None:
        self.micros = BASE + 100 * SECOND
        self.pace = 1
        self.steady = 0

    def time_ns(self) -> int:
        self.micros += self.pace
        return self.micros * 1000

    def monotonic_ns(self) -> int:
        """A clock that nobody sets."""
        self.steady += self.pace
        return self.steady * 1000


@dataclass
class Peer:
    """Who sends the rows of a stream over TCP: what is left to send, and what was received of it."""

    rows: list[Row]
    left: list[Row]
    socket: socket.socket | None = None
    received: dict[int, bytes] = field(default_factory=dict)
    """By life."""
    safe: dict[int, int] = field(default_factory=dict)
    """By life: how many of these bytes a loss of power cannot take."""
    cut: set[int] = field(default_factory=set)
    """Rows of which only a part was sent."""

    def lose_power(self) -> None:
        """What was not safe by now need not be there."""
        self.received = {life: data[: self.safe.get(life, 0)] for life, data in self.received.items()}


@dataclass
class World:
    """The world of one seed."""

    seed: int
    home: Path
    dials: frozenset[str] = DIALS
    make_disk: Callable[[Random], SimulatedDisk] = SimulatedDisk

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.maker = Maker(self.rng)
        self.history: list[str] = []
        self.time = WildTime()
        self.disk = self.make_disk(self.rng)
        self.root = self.home / "w"
        self.spelling = "absolute"
        self.peers: dict[str, Peer] = {}
        self.versions: dict[tuple[str, str], list[int]] = {}
        """How many rows a file of a stream had, each time that somebody may have looked."""
        self.lost_power = False
        self.runner: Runner | None = None
        self.idle_count = 0
        self.acts: list[Callable[[], None]] = []
        self.cuts: dict[str, bytes] = {}
        """By file: the end of a line that is still to be written."""
        self.done = False
        self.quiet = 0
        self.rotated = False
        self.ended: set[str] = set()
        """Streams whose last row was written."""
        self.loaded: dict[Path, Pipeline] = {}
        self.watching: Callable[[str, Path], None] | None = None
        """Called before each operation of a life."""

    def say(self, what: str) -> None:
        self.history.append(what)

    # --- a seed

    def run(self) -> None:
        kind = self.rng.choice(("still", "still", "changing", "live"))
        if kind == "live" and not self.dials & {"tcp", "follow", "tail"}:
            kind = "still"
        self.say(kind)
        SCENARIOS[kind](self)

    def still(self) -> None:
        """Files that do not change: the outputs are those of one run, to the last late row."""
        self._settle(self.maker.plan(("file", "folder"), wide=self.rng.random() < 0.3))
        expected, operations = self.undisturbed(self.plan)
        self._live_on(operations)
        self._same(expected, bags(self.root, self.plan))
        self._exactly_once()

    def suffer(self, plan: Plan, lives: list[dict[int, Fault]], expected: dict[str, list[str]]) -> None:
        """A run for each of these sets of faults, and then one without."""
        self._settle(plan)
        for faults in lives:
            self._life(faults)
        self._life({}, must_finish=True)
        self.disk.lose_power()
        self._same(expected, bags(self.root, plan))

    def changing(self) -> None:
        """Files that come, grow and go between one run and the next."""
        self._settle(self.maker.plan(("folder",), wide=True))
        _, operations = self.undisturbed(self.plan)
        self._live_on(operations, between=self._change_files)
        self._exactly_once()
        self._answers_follow()

    def live(self) -> None:
        """Sources that have no end, and a clock that cannot be trusted."""
        kinds = tuple(sorted({"tcp", "follow", "tail"} & self.dials))
        self._settle(self.maker.plan(kinds, wide=True))
        for stream in self.plan.streams:
            if stream.kind == "tcp":
                rows = self.maker.rows(self.rng.randint(3, 25))
                self.peers[stream.name] = Peer(rows, list(rows))
        for _ in range(self.rng.randint(0, 8)):
            more = self._write_more
            self.acts.append(self.rng.choice((more, more, more, self._send, self._clock, self._rotate)))
        self.acts += [self._send] * sum(len(peer.left) for peer in self.peers.values())
        self._live_on(self.rng.choice((30, 100, 200, 400)))
        self._exactly_once()
        self._answers_follow()

    def _settle(self, plan: Plan) -> None:
        self.plan = plan
        self._write(self.root, plan)
        for stream in plan.streams:
            self.versions.update({(stream.name, file): [len(rows)] for file, rows in stream.files.items()})

    def _write(self, root: Path, plan: Plan) -> None:
        root.mkdir(parents=True)
        (root / "p.toml").write_text(plan.text)
        (root / "t.csv").write_text(TABLE)
        for stream in plan.streams:
            (root / stream.name).mkdir()
            for file, rows in stream.files.items():
                write_file(root / stream.path(file), stream, rows)

    def undisturbed(self, plan: Plan) -> tuple[dict[str, list[str]], int]:
        """The outputs of a run that nothing happens to, and how many operations it took."""
        root = self.home / "undisturbed"
        self._write(root, plan)
        disk = SimulatedDisk(Random(0))
        with self._inside(disk):
            disk.start()
            Runner(load(root / "p.toml")).run()
        return bags(root, plan), disk.count

    # --- lives

    def _live_on(self, operations: int, between: Callable[[], None] | None = None) -> None:
        """Lives with faults, and one that comes through; what happens between them is up to the seed."""
        for _ in range(self.rng.choice((1, 1, 1, 2, 2, 3, 4))):
            outcome = self._life(self._faults(operations))
            if outcome == "finished":
                break
            self._between()
            if between is not None:
                between()
        self._life({}, must_finish=True)
        if self.rng.random() < 0.5:
            self.say("power is lost after the end")
            self.disk.lose_power()
        if "record" in self.dials and 'record = "' in self.plan.head and not self.lost_power:
            self._replayed()

    def _faults(self, operations: int) -> dict[int, Fault]:
        kinds = sorted({"kill", "power", "errors"} & self.dials)
        if not kinds:
            return {}
        at, kind = self.rng.randint(1, max(1, operations)), self.rng.choice(kinds)
        what = self.rng.choice(ERRORS) if kind == "errors" else kind
        fault = Fault(what, torn=self.rng.random() < 0.5, lasting=self.rng.random() < 0.5)
        return {at: fault}

    def _life(self, faults: dict[int, Fault], *, must_finish: bool = False) -> str:
        disk = self.disk
        disk.start(faults)
        disk.watch = self._twice() if "twice" in self.dials and self.rng.random() < 0.1 else None
        disk.watch = disk.watch or self.watching
        self.idle_count = 0
        with self._inside(disk):
            try:
                outcome = self._run()
            except SimulatedCrash:
                outcome = "crashed"
            except HeadraceError as error:
                outcome = error.code
                if not disk.met:
                    raise Violation(f"refused for no reason: {error}") from error
            finally:
                self._hang_up()
        self.say(f"life {disk.life}: {outcome} after {disk.count} operations {'; '.join(disk.met)}")
        if outcome != "crashed" and (left := [file.path.name for file in disk.left_open()]):
            raise Violation(f"left open: {left}")
        lost_power = disk.lost_power
        disk.die()
        if lost_power:
            self.lost_power = True
            for peer in self.peers.values():
                peer.lose_power()
            disk.lose_power()
        if must_finish and outcome != "finished":
            raise Violation(f"a run without faults ended as {outcome}")
        return outcome

    def _run(self) -> str:
        self.done, self.quiet = False, 0
        with self._spelled() as path:
            self.runner = Runner(self._load(path), wait=self._idle)
            result = self.runner.run()
        for name, stream in result.progress.streams.items():
            total = stream.rows_processed + stream.rows_late + stream.rows_rejected
            if stream.rows_in != total:
                raise Violation(f"stream {name}: {stream.rows_in} rows in, but {total} in its account")
        return "finished" if self.done else result.state

    def _load(self, path: Path) -> Pipeline:
        """The pipeline; to read it again would take as long as to run it, so a seed does that once."""
        if path not in self.loaded:
            self.loaded[path] = load(path)
        return self.loaded[path]

    @contextmanager
    def _inside(self, disk: SimulatedDisk) -> Iterator[None]:
        """Everything that the run takes from outside is the world's."""
        with ExitStack() as stack:
            stack.enter_context(seam.using(disk))
            stack.enter_context(mock.patch("headrace.connectors.ahead.ThreadPoolExecutor", Inline))
            stack.enter_context(mock.patch("headrace.time.clock._time", self.time))
            for module in ("identity", "rotation"):  # how long ago a file was changed is not simulated
                stack.enter_context(mock.patch(f"headrace.connectors.{module}.modified", return_value=0))
            stack.enter_context(tuning.using(spill_file_bytes=256, mapped_array_bytes=256, control_seconds=0))
            stack.enter_context(mock.patch.object(Spool, "append", self._appending(Spool.append)))
            stack.enter_context(mock.patch.object(Spool, "secure", self._securing(Spool.secure)))
            stack.enter_context(mock.patch.object(DirectoryLock, "take", self._taking(DirectoryLock.take)))
            yield

    def _taking(self, take: Callable[..., bool]) -> Callable[..., bool]:
        """A lock goes with its process."""

        def taken(lock: DirectoryLock, *, shared: bool = False) -> bool:
            self.disk.locks.append(lock)
            return take(lock, shared=shared)

        return taken

    def _appending(self, append: Callable[[Spool, bytes], None]) -> Callable[[Spool, bytes], None]:
        def appended(spool: Spool, data: bytes) -> None:
            append(spool, data)
            received = self.peers[spool._name].received
            received[self.disk.life] = received.get(self.disk.life, b"") + data

        return appended

    def _securing(self, secure: Callable[[Spool], None]) -> Callable[[Spool], None]:
        def secured(spool: Spool) -> None:
            secure(spool)
            peer = self.peers[spool._name]
            peer.safe = {life: len(data) for life, data in peer.received.items()}

        return secured

    @contextmanager
    def _spelled(self) -> Iterator[Path]:
        """The path of the pipeline, as somebody may write it."""
        here = Path.cwd()
        try:
            if self.spelling == "relative":
                os.chdir(self.root)
                yield Path("p.toml")
            elif self.spelling == "dotted":
                yield self.root / "a" / ".." / "p.toml"
            elif self.spelling == "linked":
                link = self.home / "link"
                link.unlink(missing_ok=True)
                link.symlink_to(self.root)
                yield link / "p.toml"
            else:
                yield self.root / "p.toml"
        finally:
            os.chdir(here)

    def _twice(self) -> Callable[[str, Path], None]:
        """Somewhere in this life, somebody starts the pipeline again."""
        at = self.rng.randint(1, 60)

        def watch(name: str, path: Path) -> None:
            if self.disk.count != at:
                return
            disk, self.disk.watch = self.disk, None
            before = tree(self.root)
            self.say(f"life {disk.life}: started a second time at operation {at}, {name} {path.name}")
            try:
                with disk.healthy():
                    second = Runner(load(self.root / "p.toml"), wait=lambda _: second.stop())
                    second.run()
            except HeadraceError as error:
                if error.code != "HR-D001":
                    raise Violation(f"a second run: {error}") from error
                if tree(self.root) != before:
                    raise Violation("a second run was refused, and changed something") from error

        return watch

    # --- between lives

    def _between(self) -> None:
        if "respell" in self.dials and self.rng.random() < 0.3:
            self.spelling = self.rng.choice(("absolute", "relative", "dotted", "linked"))
            self.say(f"spelled: {self.spelling}")
        if "move" in self.dials and self.rng.random() < 0.2:
            self._move()
        if "query" in self.dials and self.rng.random() < 0.15:
            self._change_query()

    def _move(self) -> None:
        self.disk.forget()
        to = self.home / f"{self.root.name}w"
        self.root.rename(to)
        self.root = to
        self.say("moved")

    def _change_query(self) -> None:
        """Other questions cannot be answered from what is known: the run is refused and changes nothing."""
        changed = self.plan.text.replace("SELECT id FROM a", "SELECT id FROM a WHERE k > 1")
        (self.root / "p.toml").write_text(changed)
        try:
            self._refused("HR-D005" if "record = " in changed else "HR-G022", "another query")
        finally:
            (self.root / "p.toml").write_text(self.plan.text)

    def _refused(self, code: str, why: str) -> bool:
        """Start; it must be refused with this code, unless there is nothing yet to go on from."""
        if not any(self.root.glob("state/commit-*[0-9]")):
            return False
        before = tree(self.root)
        self.disk.start()
        self.disk.watch = None
        with self._inside(self.disk), self._spelled() as path:
            try:
                Runner(load(path), wait=self._never).run(max_steps=0)
            except HeadraceError as error:
                if error.code != code:
                    raise Violation(f"{why}: not refused with {code}, but with {error}") from error
            else:
                raise Violation(f"{why}: not refused with {code}")
        self.disk.die()
        if tree(self.root) != before:
            raise Violation(f"{why}: refused, and something changed: {difference(before, tree(self.root))}")
        self.say(f"refused: {why}")
        return True

    def _never(self, _: float) -> None:
        raise Violation("a run that should be refused is running")

    def _change_files(self) -> None:
        stream = self.rng.choice(self.plan.streams)
        act = self.rng.choice(sorted({"arrive", "grow", "vanish"} & self.dials) or ["nothing"])
        if act == "arrive":
            self._arrive(stream)
        elif act == "grow":
            self._grow(stream)
        elif act == "vanish":
            self._vanish(stream)

    def _grow(self, stream: Stream) -> None:
        """More rows for a file; if a block was taken in part, its file is the one whose growth may hurt."""
        half = self._half_read()
        stream, file = self.rng.choice(half or [(stream, file) for file in sorted(stream.files)])
        if stream.grows and (self.root / stream.path(file)).exists():
            rows = self.maker.rows(self.rng.randint(1, 6), begin=20, bad=0.5)
            self._append(stream, file, rows)

    def _arrive(self, stream: Stream) -> None:
        """A new file, whose name is before or after those that are there."""
        name = f"{self.rng.choice((1, 5))}{len(stream.files)}.{COLUMNS[stream.format]}"
        rows = self.maker.file(stream, name)
        self.versions[stream.name, name] = [0, len(rows)]
        draft = self.root / f"{name}.draft"
        write_file(draft, stream, rows)
        draft.rename(self.root / stream.path(name))
        self.say(f"{stream.path(name)} came with {len(rows)} rows")

    def _append(self, stream: Stream, name: str, rows: list[Row]) -> None:
        """More lines for a file, perhaps with the last one cut: its end comes with the next."""
        data = self.cuts.pop(stream.path(name), b"") + stream.encode(rows)
        stream.files[name].extend(rows)
        self.versions[stream.name, name].append(len(stream.files[name]))
        if data and not stream.is_bounded and self.rng.random() < 0.4:
            at = self.rng.randint(1, max(1, len(data) - 1))
            data, self.cuts[stream.path(name)] = data[:at], data[at:]
        with (self.root / stream.path(name)).open("ab") as file:
            file.write(data)
        self.say(f"{stream.path(name)} grew by {len(rows)} rows")

    def _vanish(self, stream: Stream) -> None:
        """A file goes. If the run needs it, it says so and changes nothing; then the file comes back."""
        name = self.rng.choice(sorted(stream.files))
        path, away = self.root / stream.path(name), self.home / "away"
        if not path.exists():
            return
        path.rename(away)
        self.say(f"{stream.path(name)} is gone")
        before = tree(self.root)
        self.disk.start()
        self.disk.watch = None
        self.idle_count = 0
        with self._inside(self.disk):
            try:
                self._run()
            except HeadraceError as error:
                if error.code not in ("HR-C001", "HR-C002"):
                    raise Violation(f"a file is gone: {error}") from error
                if changed := difference(before, tree(self.root)):
                    raise Violation(f"a file is gone: refused, and changed {changed}") from error
                away.rename(path)
                self.say(f"refused with {error.code}, and put back")
            else:
                self.versions[stream.name, name].append(0)
        self.disk.die()

    # --- while it runs

    def _idle(self, _: float) -> None:
        """The sources are silent: the world goes on, and in the end the run is told to stop."""
        self.idle_count += 1
        self.time.micros += 20_000 * self.time.pace
        if self.idle_count > MOST_IDLE:
            raise Violation("it hangs")
        assert self.runner is not None
        if self.acts:
            self.acts.pop(0)()
            return
        self.quiet += 1
        if self.quiet == 1:
            self._end_all()
        elif self.quiet > 3:
            self.done = True
            self.runner.stop()

    def _write_more(self) -> None:
        streams = [stream for stream in self.plan.streams if stream.kind in ("follow", "tail")]
        if not streams:
            return
        stream = self.rng.choice(streams)
        if stream.kind == "tail" or (stream.grows and self.rng.random() < 0.7):
            file = self.rng.choice(sorted(stream.files))
            self._append(stream, file, self.maker.rows(self.rng.randint(1, 6), begin=20))
        else:
            self._arrive(stream)

    def _rotate(self) -> None:
        """A log is put aside once it was read, as logrotate does it, and written to from its beginning."""
        streams = [stream for stream in self.plan.streams if stream.kind == "tail"]
        if not streams or self.rotated or "rotate" not in self.dials:
            return
        stream = self.rng.choice(streams)
        (name,) = stream.files
        if stream.path(name) in self.cuts or not self._is_committed(stream, name):
            return  # what no commit names cannot be found again
        log, aside = self.root / stream.path(name), self.root / stream.path(f"{name}.1")
        how = self.rng.choice(("renamed", "copied and truncated"))
        if how == "renamed":
            log.rename(aside)
        else:
            shutil.copy2(log, aside)
            os.truncate(log, 0)
        with log.open("ab") as file:
            file.write(stream.head)
        self.rotated = True
        self.say(f"{stream.path(name)} was {how}")
        self._append(stream, name, self.maker.rows(self.rng.randint(0, 12), begin=20))

    def _is_committed(self, stream: Stream, name: str) -> bool:
        """Whether the last commit says how far the file was read."""
        mark = self._position(stream)["at"]["files"].get(stream.path(name))
        return mark is not None and mark[0] is not None

    def _half_read(self) -> list[tuple[Stream, str]]:
        """The files of which the last commit has a part of a block."""
        blocks = [(stream, self._position(stream).get("block")) for stream in self.plan.streams]
        return [(stream, Path(block["span"]["file"]).name) for stream, block in blocks if block is not None]

    def _position(self, stream: Stream) -> dict[str, Any]:
        """Where the last commit goes on in a stream; empty before the first."""
        commit = max(self.root.glob("state/commit-*[0-9]"), default=None)
        if commit is None:
            return {}
        found: dict[str, Any] = json.loads(commit.read_bytes().partition(b"\n")[2])
        return found["feed"]["streams"].get(stream.name, {})

    def _end_all(self) -> None:
        """Lines that were cut get their ends, and then the last row comes, after all others."""
        for stream in self.plan.streams:
            if stream.kind == "tcp":
                self._send_bytes(stream, stream.encode([self.maker.last(self.idle_count)]))
                continue
            for file in sorted(stream.files):
                rest = self.cuts.pop(stream.path(file), b"")
                if rest:
                    with (self.root / stream.path(file)).open("ab") as open_file:
                        open_file.write(rest)
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        if stream.name in self.ended:
            return
        self.ended.add(stream.name)
        if stream.kind == "tail":
            with (self.root / stream.path(*stream.files)).open("ab") as file:
                file.write(stream.encode([self.maker.last()]))
        else:
            last = stream.path(f"~.{COLUMNS[stream.format]}")
            write_file(self.root / last, stream, [self.maker.last()])

    def _clock(self) -> None:
        if "clock" not in self.dials:
            return
        how = self.rng.choice(("ahead", "back", "stopped", "going"))
        self.time.micros += {"ahead": 3600, "back": -7200}.get(how, 0) * SECOND
        self.time.pace = int(how != "stopped")
        self.say(f"clock: {how}")

    # --- the network

    def _port(self, stream: Stream) -> int:
        assert self.runner is not None
        inflow = next(each for each in self.runner.feed.inflows if each.name == stream.name)  # type: ignore[attr-defined]
        return int(inflow.source.wire.port)

    def _send_bytes(self, stream: Stream, data: bytes) -> None:
        peer = self.peers[stream.name]
        if peer.socket is None:
            peer.socket = socket.create_connection(("127.0.0.1", self._port(stream)))
        peer.socket.sendall(data)

    def _send(self) -> None:
        """A peer sends some rows, or part of one; or its connection is cut, or is silent."""
        streams = [stream for stream in self.plan.streams if stream.kind == "tcp"]
        if not streams:
            return
        stream = self.rng.choice(streams)
        peer = self.peers[stream.name]
        how = self.rng.choice(("rows", "rows", "rows", "part", "end", "silent"))
        if how == "rows" and peer.left:
            count = self.rng.randint(1, 5)
            rows, peer.left = peer.left[:count], peer.left[count:]
            self._send_bytes(stream, stream.encode(rows))
        elif how == "part" and peer.left:
            row = peer.left.pop(0)
            line = stream.encode([row])
            peer.cut.add(row.id)
            self._send_bytes(stream, line[: self.rng.randint(1, len(line) - 4)])
            self._cut(peer, hard=self.rng.random() < 0.5)
        elif how == "end":
            self._cut(peer, hard=False)

    def _cut(self, peer: Peer, *, hard: bool) -> None:
        if peer.socket is None:
            return
        if hard:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        peer.socket = None

    def _hang_up(self) -> None:
        """The process is gone, and its sockets with it."""
        if self.runner is not None and hasattr(self.runner, "feed"):
            with suppress(SimulatedCrash):
                self.runner.feed.close()
        for peer in self.peers.values():
            self._cut(peer, hard=False)

    # --- laws

    def _same(self, expected: dict[str, list[str]], found: dict[str, list[str]]) -> None:
        for name, rows in expected.items():
            if rows != found[name]:
                less, more = Counter(rows) - Counter(found[name]), Counter(found[name]) - Counter(rows)
                raise Violation(f"{name}: missing {_some(less)}, too many {_some(more)}")

    def _exactly_once(self) -> None:
        for stream in self.plan.streams:
            found = account(self.root, self.plan, stream)
            rows = found.rows
            rows.pop(LAST, None)
            twice = [id for id, n in (*rows.items(), *found.rejected.items()) if n > 1]
            if twice:
                raise Violation(f"{stream.name}: rows {twice} more than once")
            if self.plan.wide and (late := set(found.late) - {LAST}):
                raise Violation(f"{stream.name}: rows {sorted(late)} are late")
            if stream.kind == "tcp":
                self._all_received(stream, set(rows), set(found.rejected))
            else:
                self._all_of_some_version(stream, set(rows), set(found.rejected))

    def _all_of_some_version(self, stream: Stream, rows: set[int], rejected: set[int]) -> None:
        for file, written in stream.files.items():
            seen = [row.id in (rejected if row.bad else rows) for row in written]
            count = seen.index(False) if False in seen else len(seen)
            if any(seen[count:]) or count not in self.versions[stream.name, file]:
                lost = [row.id for row, was_seen in zip(written, seen, strict=True) if not was_seen]
                raise Violation(
                    f"{stream.path(file)}: rows {lost} of {[row.id for row in written]} are lost; "
                    f"it had {self.versions[stream.name, file]} rows at times"
                )
            if not stream.is_bounded and count < len(written):
                raise Violation(f"{stream.path(file)}: {count} rows read of {len(written)}")

    def _all_received(self, stream: Stream, rows: set[int], rejected: set[int]) -> None:
        peer = self.peers[stream.name]
        for life, data in peer.received.items():
            for line in data.split(b"\n")[:-1]:
                found = _id_of(line)
                if found is None or found[0] == LAST or found[0] in peer.cut:
                    continue
                if found[0] not in (rejected if found[1] else rows):
                    raise Violation(f"{stream.name}: row {found[0]} was received in life {life}, and is lost")

    def _answers_follow(self) -> None:
        """The queries' answers are those about the rows that were taken."""
        if not self.plan.asked:
            return
        taken = {}
        for stream in self.plan.streams:
            rows = account(self.root, self.plan, stream).rows
            written = [row for file in stream.files.values() for row in file]
            if stream.kind == "tcp":
                written = self.peers[stream.name].rows
            taken[stream.name] = [row for row in written if row.id in rows and not row.bad]
        plan = self.plan.over(taken)
        root = self.home / "oracle"
        self._write(root, plan)
        Runner(load(root / "p.toml")).run()
        expected, found = bags(root, plan), bags(self.root, self.plan)
        self._same({name: expected[name] for name in plan.asked}, found)

    def _replayed(self) -> None:
        """What was recorded gives the same outputs again."""
        into = self.home / "replayed"
        with self._inside(SimulatedDisk(Random(0))):
            replay(self.root / "record", into)
        for name in self.plan.outputs:
            found, expected = (
                sorted(map(str, read_output(each / name))) for each in (into, self.root / "out")
            )
            if found != expected:
                raise Violation(f"replayed, {name} is not what it was")


SCENARIOS: Final = {"still": World.still, "changing": World.changing, "live": World.live}


def tree(root: Path) -> dict[str, bytes]:
    """What a run has written: all files, but for locks and what is spilled."""
    found = {}
    for top in ("out", "state", "record"):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and path.name.lower() != "lock" and "spill" not in str(path.relative_to(root)):
                found[str(path.relative_to(root))] = path.read_bytes()
    return found


def difference(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The files that are not what they were.

    What was never committed may be cut off or removed, and what was committed may get its name.
    """
    drafts = {data for name, data in before.items() if name.endswith(".draft")}
    after = {name: data for name, data in after.items() if name in before or data not in drafts}
    same = {name for name, data in after.items() if name in before and _is_cut(name, before[name], data)}
    names = (before.keys() | after.keys()) - same - {"record/pipeline.json"}  # written at each start
    return sorted(name for name in names if not name.endswith(".draft") or name in after)


def _is_cut(name: str, before: bytes, after: bytes) -> bool:
    return before == after or (name.startswith("out/") and before.startswith(after))


def _some(rows: Counter[str]) -> str:
    shown = list(rows.elements())
    return f"{len(shown)} rows" + (f", such as {shown[0]}" if shown else "")


def _id_of(line: bytes) -> tuple[int, bool] | None:
    """The id in a line, and whether it is a bad one."""
    found = re.match(rb'\{"id": (?:"bad(\d+)\.|(-?\d+),)', line)
    return None if found is None else (int(found[1] or found[2]), found[1] is not None)


def simulate(seed: int, story: Callable[[World], None] = World.run, **how: Any) -> World:
    """One seed, from nothing to nothing; a Violation tells what happened up to it."""
    home = Path(tempfile.mkdtemp(prefix=f"headrace-{seed}-", dir=MEMORY if MEMORY.is_dir() else None))
    world = World(seed, home, **how)
    try:
        story(world)
    except SimulatedCrash as error:
        raise AssertionError("a crash outside of a life") from error
    except Exception as error:
        said = "\n".join(["", f'seed {seed}: make simulate ARGS="--seed {seed}"', *world.history, str(error)])
        raise Violation(said) from error
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return world
