"""Runs a small pipeline over given input, and gives back what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.pipeline import load, parse
from headrace.runtimes.embedded import Progress, Runner

TEXT = """
[pipeline]
name = "small"
runtime = "embedded"
{pipeline}

[streams.s]
source = {source}
schema = "{schema}"
time = {time}
{stream}

[[queries]]
name = "all"
sql = "{sql}"
sink = {{ path = "all.jsonl", existing = "replace" }}
late = {{ path = "late.jsonl", existing = "replace" }}
rejected = {{ path = "rejected.jsonl", existing = "replace" }}
"""


@dataclass(frozen=True)
class Outcome:
    """What a run gave."""

    state: str
    rows: list[dict[str, Any]]
    late: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    progress: Progress

    @property
    def codes(self) -> list[str]:
        return [each["code"] for each in self.rejected]


def run_small(
    root: Path,
    source: str,
    *,
    schema: str = "k BIGINT, v STRING, at BIGINT",
    time: str = '{ column = "at", unit = "us" }',
    sql: str = "SELECT k, v FROM s",
    stream: str = "bounds = { disorder = '1 hour' }",
    pipeline: str = "",
    wait: Callable[[Runner], None] | None = None,
    **run: Any,
) -> Outcome:
    """Select everything from one stream; every row is accounted for."""
    text = TEXT.format(source=source, schema=schema, time=time, sql=sql, stream=stream, pipeline=pipeline)
    runner = Runner(parse(text, root=root), wait=lambda _: None if wait is None else wait(runner))
    result = runner.run(**run)
    account = result.progress.streams["s"]
    lost = account.rows_late + account.rows_rejected + account.rows_shed
    assert account.rows_in == account.rows_processed + lost
    outcome = Outcome(
        result.state, *(_lines(root / f"{n}.jsonl") for n in ("all", "late", "rejected")), result.progress
    )
    assert len(outcome.rejected) == account.rows_rejected
    return outcome


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class BrokenDown(Exception):
    """A run that ends at any moment, as if it were killed."""


def break_down(file: Path, after: list[int]) -> None:
    """Run a pipeline again and again; each run ends after that many steps, without a commit."""
    for steps in after:
        left = steps

        def breaks(progress: Progress) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise BrokenDown

        with suppress(BrokenDown):
            Runner(load(file)).run(on_progress=breaks, every=0)
