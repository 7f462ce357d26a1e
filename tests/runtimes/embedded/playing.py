"""Runs an injected stall (tests/stalls.py) in an embedded run, with a clock that the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from headrace.runtimes.embedded import Runner
from headrace.runtimes.status import Status
from headrace.time.clock import ManualClock
from tests.stalls import BASE, SECOND, Stall, Step


class Play:
    """Runs a pipeline with a manual clock; when its sources are idle, the next step happens."""

    def __init__(self, root: Path, stall: Stall, each: Callable[[Play], None] | None = None) -> None:
        self.root, self.steps = root, list(stall.steps)
        self.clock = ManualClock(BASE)
        self.numbers = dict.fromkeys(stall.streams, 0)
        for name in stall.streams:
            (root / name).mkdir(parents=True)
        self.runner = Runner(stall.pipeline(root), clock=self.clock, wait=self._idle)
        self.statuses: list[Status] = []
        self._each = each

    def run(self) -> Status:
        self.runner.run(on_progress=self.statuses.append, every=3600.0)
        return self.statuses[-1]

    def _idle(self, seconds: float) -> None:
        self.statuses.append(self.runner.progress())
        if self._each is not None:
            self._each(self)
        if not self.steps:
            self.runner.stop()
            return
        self.put(self.steps.pop(0))

    def put(self, step: Step) -> None:
        now = self.clock.advance(int(step.seconds * SECOND))
        for name, times in step.rows.items():
            number = self.numbers[name] = self.numbers[name] + 1
            rows = [{"item": i % 5, "at": now + int(at * SECOND)} for i, at in enumerate(times)]
            draft = self.root / f"{name}.draft"
            draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
            draft.rename(self.root / name / f"{number:05}.json")
