"""By default, an answer can be seen in its file within a second."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Runner

TEXT = """
[pipeline]
name = "visible"
checkpoint = "state"
[streams.s]
source = { path = "in", format = "json", follow = true }
schema = "k BIGINT, at BIGINT"
time = { column = "at", unit = "tick" }
[[queries]]
name = "all"
sql = "SELECT k FROM s"
sink = "all.jsonl"
"""
PATIENCE = 120.0
MOST = 1.0
"""Seconds."""
TRIES = 8
"""On a busy machine a row may have to wait for the processor; not each of so many."""


def seen(root: Path) -> list[int]:
    """The answers that a reader of the output finds, in a file or in those of Spark's micro-batches."""
    path = root / "all.jsonl"
    files = path.glob("batch=*/part-*") if path.is_dir() else [path] * path.exists()
    lines = (line for file in files for line in file.read_text().splitlines())
    return sorted(json.loads(line)["k"] for line in lines if line.endswith("}"))


def waits(root: Path, tries: int, runner: Any) -> list[float]:
    """How long each answer had to wait. A row is answered when the next one says that its time is over."""
    found = []
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        for k in range(tries):
            draft = root / "in" / f".{k}.jsonl"
            draft.write_text(json.dumps({"k": k, "at": k}) + "\n")
            draft.rename(root / "in" / f"{k}.jsonl")
            written = time.monotonic()
            while seen(root) != list(range(k)):
                assert time.monotonic() - written < PATIENCE
                assert thread.is_alive()
                time.sleep(0.01)
            found.append(time.monotonic() - written)
    finally:
        runner.stop()
        thread.join(PATIENCE)
    return found[1:]


def prepared(root: Path) -> Pipeline:
    (root / "in").mkdir()
    (root / "p.toml").write_text(TEXT)
    return load(root / "p.toml")


def test_an_answer_is_in_its_file_within_a_second(tmp_path: Path) -> None:
    assert min(waits(tmp_path, TRIES, Runner(prepared(tmp_path)))) < MOST
