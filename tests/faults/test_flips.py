"""One flipped bit in whatever is read back: the answers are right, or there is an error that says what to do.

A few bits of each kind of file here; `make flips` flips 200 of each (HEADRACE_FLIPS).
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.errors import HeadraceError
from headrace.expressions import col
from headrace.pipeline import load
from headrace.plan.nodes.core import IStream, Join, Project, Source, Window
from headrace.plan.nodes.windows import Range
from headrace.runtimes.embedded import Runner, factory
from headrace.runtimes.embedded.runner import replay
from headrace.spill.directory import DirectorySpillStore
from tests.runtimes.embedded.pipelines import PIPELINES, bags, sliding

FLIPS: Final = int(os.environ.get("HEADRACE_FLIPS", "6"))
"""How many bits of each kind are flipped, one at a time."""


def flip(path: Path, rng: random.Random) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def tried(place: Path, pattern: str, run: Callable[[], Any], expected: Any) -> dict[str, int]:
    """How runs ended, each after one bit was flipped in a file under `place` of this kind."""
    kept = place.with_name(f"{place.name}.kept")
    shutil.copytree(place, kept)
    rng = random.Random(f"{pattern} {FLIPS}")
    ended: dict[str, int] = {}
    for _ in range(FLIPS):
        shutil.rmtree(place)
        shutil.copytree(kept, place)
        files = sorted(path for path in place.glob(pattern) if path.is_file() and path.stat().st_size)
        victim = rng.choice(files)
        flip(victim, rng)
        how = _how(run, expected, str(victim))
        ended[how] = ended.get(how, 0) + 1
    print(f"{pattern}: {FLIPS} flips, {ended}")
    return ended


def _how(run: Callable[[], Any], expected: Any, victim: str) -> str:
    try:
        found = run()
    except HeadraceError as error:
        return error.code if error.hint else f"no hint: {error}"
    assert found == expected, victim
    return "right"


CHECKPOINT: Final = {
    "state/commit-*": ("sliding", 900, 12),
    "state/state-*": ("sliding", 900, 12),
    "state/files/*": ("replayed", 300, 30),
}
"""Kinds of files, and the pipeline, its rows and the steps after which there are such files."""


@pytest.mark.parametrize("pattern", CHECKPOINT)
def test_a_flipped_bit_in_a_checkpoint(pattern: str, tmp_path: Path) -> None:
    name, rows, steps = CHECKPOINT[pattern]
    (tmp_path / "whole").mkdir()
    Runner(load(PIPELINES[name](tmp_path / "whole", rows=rows))).run()
    expected = bags(tmp_path / "whole")
    place = tmp_path / "begun"
    place.mkdir()
    pipeline = PIPELINES[name](place, rows=rows)
    assert Runner(load(pipeline)).run(max_steps=steps).state == "stopped"
    if not list(place.glob(pattern)):
        pytest.skip("no such file is written")

    def run() -> Any:
        assert Runner(load(pipeline)).run().state == "finished"
        return bags(place)

    assert set(tried(place, pattern, run, expected)) == {"right"}


class Killed(BaseException):
    """What ends a run as `kill -9` does: nothing more is committed."""


class Wire:
    """Gives what it is given; then it ends, or the run is killed."""

    def __init__(self, chunks: list[bytes], *, killed: bool) -> None:
        self._chunks, self._killed = chunks, killed

    def receive(self) -> bytes:
        if self._chunks:
            return self._chunks.pop(0)
        if self._killed:
            raise Killed
        return b""

    def close(self) -> None:
        return None


def wired(root: Path) -> Path:
    path = root / "pipeline.toml"
    path.write_text(
        """
        [pipeline]
        name = "wired"
        runtime = "embedded"
        checkpoint = "state"
        [streams.s]
        source = { type = "tcp", port = 1 }
        schema = "id BIGINT, v BIGINT, at BIGINT"
        time = { column = "at", unit = "ms" }
        [[queries]]
        name = "hot"
        sql = "SELECT id, v FROM s"
        sink = "hot.jsonl"
        rejected = "rejected.jsonl"
        """
    )
    return path


def lines(count: int) -> list[bytes]:
    text = b"".join(b'{"id":%d,"v":%d,"at":%d}\n' % (i, i * 1001, i) for i in range(count))
    return [text[i : i + 300] for i in range(0, len(text), 300)]


def test_22_a_flipped_bit_in_the_spool(tmp_path: Path) -> None:
    place = tmp_path / "begun"
    place.mkdir()
    pipeline = wired(place)

    def run(chunks: list[bytes], *, killed: bool = False) -> Any:
        with mock.patch.object(factory, "TcpClient", return_value=Wire(chunks, killed=killed)):
            Runner(load(pipeline)).run()
        return bags(place)

    with pytest.raises(Killed):
        run(lines(200), killed=True)
    rows = [{"id": i, "v": i * 1001} for i in range(200)]
    hot = sorted(json.dumps(row, separators=(",", ":")) for row in rows)
    ended = tried(place, "state/spool/*", lambda: run([]), {"hot.jsonl": hot, "rejected.jsonl": []})
    assert set(ended) == {"HR-D007"}


def test_a_flipped_bit_in_a_recorded_run(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300, more='record = "recorded"')
    Runner(load(pipeline)).run()
    expected = bags(tmp_path)

    def run() -> Any:
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        replay(tmp_path / "recorded", tmp_path / "again")
        return bags(tmp_path / "again")

    assert run() == expected
    ended = tried(tmp_path / "recorded", "*", run, expected)
    assert set(ended) <= {"HR-D011", "right"}, "a bit of white space in pipeline.json changes nothing"


SCHEMA: Final = pa.schema([("k", pa.int64()), ("s", pa.string())])
LEFT, RIGHT = (Window(Source(name, SCHEMA), Range(20_000)) for name in "ab")
JOIN: Final = IStream(Join(LEFT, Project(RIGHT, (("l", col("k")), ("t", col("s")))), ("k",), ("l",)))


def joining(place: Path, harm: Callable[[], None]) -> Iterator[Any]:
    """The answers of a join that has put its state on disk, step by step."""
    spill_store = DirectorySpillStore(place)
    try:
        engine = Engine(spill_to=spill_store)
        engine.add("q", JOIN)
        rng = np.random.default_rng(5)
        for step in range(4):
            for stream in ("a", "b"):
                keys = rng.integers(0, 3_000, 2_000)
                rows = pa.RecordBatch.from_pydict({"k": keys, "s": [f"{stream}{k}" for k in keys]}, SCHEMA)
                engine.push(stream, rows, np.arange(step * 2_000, (step + 1) * 2_000))
            engine.run()
            yield [row for batch in engine.drain("q") for row in batch.data.to_pylist()]
            engine.memory.spill(1 << 30)
            harm()
    finally:
        spill_store.close()


def test_a_flipped_bit_in_spilled_state(tmp_path: Path) -> None:
    expected = list(joining(tmp_path, lambda: None))
    rng = random.Random(FLIPS)
    ended: dict[str, int] = {}
    for _ in range(FLIPS):
        left = [rng.randrange(3)]

        def harm(left: list[int] = left) -> None:
            left[0] -= 1
            files = sorted(tmp_path.rglob("*.arrow"))
            if left[0] == -1:
                flip(rng.choice(files), rng)

        how = _how(lambda harm=harm: list(joining(tmp_path, harm)), expected, "spill")  # type: ignore[misc]
        ended[how] = ended.get(how, 0) + 1
    print(f"spill: {FLIPS} flips, {ended}")
    assert set(ended) <= {"HR-M103", "right"}, "a file may go unread when its rows are over"
    assert "HR-M103" in ended


class Cells(dict[Any, Any]):
    """A map of Spark's state store."""

    getValue = dict.get
    updateValue = dict.__setitem__
    removeKey = dict.__delitem__


def test_a_flipped_bit_in_the_state_on_spark() -> None:
    store = pytest.importorskip("headrace.runtimes.spark.worker.state_store")
    engine, cells = Engine(), Cells()
    engine.add("q", JOIN)
    kept, head = store.Store(cells, store.Layout()), None
    for step in range(4):
        rows = pa.RecordBatch.from_pydict({"k": [step, 7], "s": ["x", "y"]}, SCHEMA)
        engine.push("a", rows, [step, step])
        engine.run()
        engine.drain("q")
        head = kept.write(engine, head)
        kept.take_up({"a": SCHEMA})
    rng = random.Random(FLIPS)
    whole = dict(cells)
    for _ in range(FLIPS):
        cells.clear()
        cells.update(whole)
        key = rng.choice(sorted(cells))
        name, data = cells[key]
        changed = bytearray(data)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        cells[key] = name, bytes(changed)
        with pytest.raises(HeadraceError, match="HR-SP21"):
            _ = kept.take_up({"a": SCHEMA}), kept.all(kept.head())
