"""The pipeline of the soak, and the world around it: files that come and go, a log that rotates, a socket.

All rows carry the instant at which they were written. A few are a minute late, a few are no rows at all, and
of both it is counted how many were sent: the account of the run must say the same.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PIPELINE: Final = """
[pipeline]
name = "soak"
runtime = "embedded"
checkpoint = "state"
interval = "1 second"

[memory]
budget = "{budget}"
policy = "spill"

[streams.lots]
source = {{ path = "lots", format = "json", follow = true }}
schema = "k BIGINT, v DOUBLE, note STRING, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ latency = "5 seconds" }}
guard = "1 hour"

[streams.log]
source = {{ path = "log.jsonl", follow = true }}
schema = "k BIGINT, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ latency = "5 seconds" }}

[streams.wire]
source = {{ type = "tcp", host = "127.0.0.1", port = {port}, listen = true }}
schema = "n BIGINT, k BIGINT, note STRING, at BIGINT"
time = {{ column = "at", unit = "us" }}
bounds = {{ latency = "5 seconds" }}

# Ever new keys, each for ten seconds: what expired must return its memory.
[[queries]]
name = "groups"
sql = '''SELECT k, count(*) AS n, avg(v) AS v, window_end
         FROM lots [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k'''
sink = "groups.jsonl"
late = "groups_late.jsonl"
rejected = "groups_rejected.jsonl"

[[queries]]
name = "gone"
sql = '''DSTREAM(SELECT DISTINCT k FROM log [RANGE 10 SECONDS])'''
sink = "gone.jsonl"
late = "gone_late.jsonl"
rejected = "gone_rejected.jsonl"

[[queries]]
name = "all"
sql = '''SELECT n FROM wire'''
sink = "all.jsonl"
late = "all_late.jsonl"
rejected = "all_rejected.jsonl"

# Two sides that are larger than the budget: this spills.
[[queries]]
name = "pairs"
sql = '''SELECT w.n, l.v FROM lots [RANGE 60 SECONDS] AS l, wire [RANGE 60 SECONDS] AS w WHERE l.k = w.k'''
sink = {{ path = "pairs", format = "parquet" }}
"""

MOST: Final = 10_000
"""Rows of a stream that are written at once."""
LATE_BY: Final = 60_000_000
NOTE: Final = "x" * 200
STREAMS: Final = ("lots", "log", "wire")


@dataclass
class Sent:
    """What was sent on a stream, by kind."""

    good: int = 0
    late: int = 0
    bad: int = 0

    @property
    def rows(self) -> int:
        return self.good + self.late + self.bad


@dataclass
class World:
    """Writes rows at a steady rate. `turn` writes all that is due by now."""

    root: Path
    port: int
    rate: int
    """Rows a second, on each stream."""
    seed: int
    kept: int = 60
    """Files that stay in the directory; older ones are removed, as a job that tidies up does."""
    rotate: float | None = None
    """Seconds between rotations of the log."""
    warm: bool = False
    """Whether something has been promised on every stream: before that, no row is late."""
    sent: dict[str, Sent] = field(default_factory=lambda: {name: Sent() for name in STREAMS})
    mishaps: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self._begun = self._last = time.monotonic()
        self._due = dict.fromkeys(STREAMS, 0.0)
        self._files: list[Path] = []
        self._rotated = self._begun
        self._socket: socket.socket | None = None
        self._hung_up = self._begun
        self.wire_is_open = True
        (self.root / "lots").mkdir()
        (self.root / "log.jsonl").touch()

    def write_pipeline(self, budget: str) -> Path:
        path = self.root / "pipeline.toml"
        path.write_text(PIPELINE.format(port=self.port, budget=budget))
        return path

    def burst(self, rows: int) -> None:
        """So many keys at once, on top of the steady ones; when they have expired they must be gone."""
        for name in ("lots", "log"):
            self._due[name] += rows

    def turn(self) -> None:
        now = time.monotonic()
        for name in STREAMS:
            self._due[name] += (now - self._last) * self.rate
        self._last = now
        while self._due["lots"] >= self.rate:
            self._file()
        self._append()
        self._send()

    def _lines(self, stream: str, columns: dict[str, object]) -> bytes:
        """The rows that are due, with a few late and bad ones among them; their numbers are ever new."""
        count = min(int(self._due[stream]), MOST)
        self._due[stream] -= count
        sent, lines = self.sent[stream], list[str]()
        for _ in range(count):
            now, chance = time.time_ns() // 1000, self._rng.random()
            row = {"n": sent.rows, "k": sent.rows * 7919, "v": self._rng.random(), **columns}
            if chance < 0.005:
                sent.bad += 1
                lines.append(json.dumps(row)[: self._rng.randint(1, 9)])
                continue
            late = self.warm and chance < 0.01
            sent.late += late
            sent.good += not late
            names = {"lots": "k v note", "log": "k", "wire": "n k note"}[stream].split()
            row = {name: row[name] for name in names} | {"at": now - LATE_BY * late}
            lines.append(json.dumps(row))
        return "".join(f"{line}\n" for line in lines).encode()

    def _file(self) -> None:
        """A new file, which gets its name when it is whole."""
        name = f"{time.time_ns():020d}.jsonl"
        draft = self.root / "lots" / f".{name}"
        draft.write_bytes(self._lines("lots", {"note": NOTE}))
        self._files.append(draft.rename(self.root / "lots" / name))
        while len(self._files) > self.kept:
            self._files.pop(0).unlink()

    def _append(self) -> None:
        path = self.root / "log.jsonl"
        if self.rotate is not None and time.monotonic() - self._rotated > self.rotate:
            path.replace(self.root / "log.jsonl.1")
            self._rotated = time.monotonic()
            self.mishaps["rotations"] += 1
        with path.open("ab") as log:
            log.write(self._lines("log", {}))

    def _send(self) -> None:
        """Lines on a connection that is made again now and then, with visitors in between."""
        if not self.wire_is_open:
            return
        if self._socket is None:
            try:
                self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            except OSError:
                return
        try:
            self._socket.sendall(self._lines("wire", {"note": NOTE}))
        except OSError:  # the run has ended: what it did not read is lost, and will be missing
            self.mishaps["lines cut off"] += 1
            self.hang_up()
        if time.monotonic() - self._hung_up > 7:
            self.hang_up()

    def hang_up(self) -> None:
        self._hung_up = time.monotonic()
        self.mishaps["connections"] += self._socket is not None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def close(self) -> None:
        self.hang_up()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def mistakes(root: Path, sent: dict[str, Sent]) -> list[str]:
    """What is wrong with the outputs, once all that was sent has been answered."""
    numbers = _values(root / "all.jsonl", "n")
    found = {
        "wire rows answered": (len(numbers), sent["wire"].good),
        "wire rows answered, each once": (len(set(numbers)), sent["wire"].good),
        "lots rows counted in groups": (sum(_values(root / "groups.jsonl", "n")), sent["lots"].good),
        "log keys that came and went": (len(_values(root / "gone.jsonl", "k")), sent["log"].good),
        "log keys that came and went, each once": (
            len(set(_values(root / "gone.jsonl", "k"))),
            sent["log"].good,
        ),
    }
    for query, stream in (("groups", "lots"), ("gone", "log"), ("all", "wire")):
        found[f"{stream} rows set apart as late"] = (_lines(root / f"{query}_late.jsonl"), sent[stream].late)
        found[f"{stream} rows rejected"] = (_lines(root / f"{query}_rejected.jsonl"), sent[stream].bad)
    return [f"{what}: {a:,}, and not {b:,}" for what, (a, b) in found.items() if a != b]


def _values(path: Path, name: str) -> list[int]:
    with path.open() as lines:
        return [json.loads(line)[name] for line in lines]


def _lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for _ in lines)
