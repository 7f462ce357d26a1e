"""A recorded run, run again: the same instants, the same rows, the same commits, so the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.runtimes.embedded.progress import Progress
from headrace.runtimes.embedded.record import Recorded
from headrace.runtimes.embedded.runner import Result, Runner


def replay(
    recorded: str | Path, into: str | Path, *, on_progress: Callable[[Progress], None] | None = None
) -> Result:
    """Run a recorded run again; outputs go to the directory `into`, under the names they had."""
    run = Recorded(recorded)
    return Runner(run.pipeline, into=into).replay(run.commits(), on_progress)
