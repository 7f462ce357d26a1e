"""Reloads lookup tables on their schedules: one more writer of the control log, in a thread of its own.

A slow database keeps nobody waiting. If the rows cannot be read, the table keeps those that it has, and they
are read again when the next reload is due.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Final

from headrace.control import Reload, log_of
from headrace.control.reloading import newest_reloads
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline
from headrace.pipeline.lookups import rows_now, to_bytes
from headrace.time.clock import seconds

LOOK: Final = 60.0
"""The most seconds that the thread waits before it looks at its schedule again."""


class Reloader:
    """Writes a command for each table that is due and has other rows than before."""

    def __init__(self, pipeline: Pipeline, say: Callable[[str], object]) -> None:
        self._pipeline, self._say = pipeline, say
        self._log = log_of(pipeline)
        tables = pipeline.spec.tables.items()
        self.every = {name: float(t.reload) for name, t in tables if not isinstance(t.reload, bool)}
        self._last: dict[str, str | None] = {}
        self._due: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    @staticmethod
    def of(pipeline: Pipeline, say: Callable[[str], object]) -> Reloader | None:
        """A reloader for a pipeline; None if no table has a schedule."""
        made = Reloader(pipeline, say) if pipeline.spec.tables else None
        return made if made is not None and made.every else None

    def begin(self, now: float, *, at_once: bool) -> None:
        """Begin to count, or read all tables at once: a run that continues may have missed reloads."""
        newest = newest_reloads(self._log.read())
        for name, every in self.every.items():
            known = newest.get(name)
            rows = self._pipeline.catalog.tables[name.lower()].data
            if known is not None and known.rows is not None:
                self._last[name] = known.rows.partition("-")[0]
            elif not at_once and rows is not None:
                self._last[name] = _digest(to_bytes(rows))
            self._due[name] = now if at_once else now + every

    def look(self, now: float) -> None:
        """Reload the tables that are due."""
        for name, due in self._due.items():
            if now < due:
                continue
            self._due[name] = now + self.every[name]
            try:
                self._reload(name)
            except HeadraceError as error:
                self._say(f"table {name} keeps its rows: [{error.code}] {error.message}")

    def _reload(self, name: str) -> None:
        """Write the rows that a table has now, if they are others than before."""
        rows = to_bytes(rows_now(self._pipeline, name))
        digest = _digest(rows)
        if self._last.get(name) != digest:
            self._log.append(Reload(name, rows=self._log.keep(rows)))
            self._last[name] = digest

    # --- the thread

    def start(self, *, at_once: bool) -> None:
        """Follow the schedules until `stop`."""
        self.begin(seconds(), at_once=at_once)
        self._thread = threading.Thread(target=self._follow, name="headrace reload", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self.look(seconds())
            wait = min(self._due.values()) - seconds()
            self._stopping.wait(min(max(wait, 0.0), LOOK))

    def stop(self) -> None:
        """End the thread; a read that is under way ends by itself, and writes nothing."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)


def _digest(rows: bytes) -> str:
    """As `Log.keep` names rows."""
    return hashlib.blake2b(rows, digest_size=8).hexdigest()
