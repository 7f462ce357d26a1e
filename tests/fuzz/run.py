"""Tries seeds in processes of their own, with a watchdog: a crash or a hang is a finding like any other."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 5.0
"""CPU time that one input or text may take: the machine may be busy with other things."""
WAITING = 60.0
"""How long it may take by the clock: what waits uses no CPU."""
WARM_UP = 120.0
"""How long a process may take for its first, by both: kernels are compiled and loaded."""
MEMORY = 256 << 20
"""Bytes that one may add to the process: the budget of the pipelines is 64 MB, and a block takes as much."""
PROGRAM = ["-m", "tests.fuzz.worker"]
RSS = 3 << 30
"""Bytes from which on the process is ended at once."""


@dataclass
class Report:
    """What was found."""

    tried: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)
    largest: tuple[int, int] = (0, -1)


class Tried:
    """One process at work on the seeds `begin` … `end` − 1."""

    def __init__(self, kind: str, begin: int, end: int) -> None:
        command = [sys.executable, *PROGRAM, kind, str(begin), str(end)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._rest = b""

    def line(self, seconds: float) -> dict[str, object] | str:
        """What it says next, or what is wrong with it."""
        assert self.process.stdout is not None
        until, used = time.monotonic() + max(seconds, WAITING), self.cpu() + seconds
        while b"\n" not in self._rest:
            if time.monotonic() > until or self.cpu() > used:
                return f"HANG of more than {seconds:.0f} s"
            if self._rss() > RSS:
                return f"MEMORY of more than {RSS >> 20} MB"
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                data = self.process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
                if not data:
                    return f"CRASH, exit code {self.process.wait()}"
                self._rest += data
        one, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, object] = json.loads(one)
        return found

    def cpu(self) -> float:
        """Seconds of CPU that it used."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _rss(self) -> int:
        try:
            return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) << 12
        except (OSError, IndexError):
            return 0

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def run(kind: str, begin: int, end: int, show: bool = False) -> Report:
    """Try seeds; each that fails is reported with the reason."""
    report, seed = Report(), begin
    while seed < end:
        tried, patience = Tried(kind, seed, end), WARM_UP
        try:
            while seed < end:
                wrong = _one(tried, seed, patience, report)
                patience = SECONDS
                report.tried += 1
                seed += 1
                if show and report.tried % 500 == 0:
                    print(f"{kind} {report.tried:,}: {len(report.failed)} failed", flush=True)
                if wrong is not None:
                    report.failed[seed - 1] = wrong
                    if show:
                        print(f"{kind} seed {seed - 1}: {wrong[-1500:]}", flush=True)
                    if not wrong.startswith(("TRACEBACK", "BYTES")):
                        break
        finally:
            tried.end()
    return report


def _one(tried: Tried, seed: int, patience: float, report: Report) -> str | None:
    """Follow one seed; what is wrong with it."""
    first = tried.line(WARM_UP)
    if isinstance(first, str):
        return first
    assert first["seed"] == seed
    began = tried.cpu()
    found = tried.line(patience)
    if isinstance(found, str):
        return found
    report.slowest = max(report.slowest, (tried.cpu() - began if patience == SECONDS else 0.0, seed))
    said, size = str(found["said"]), int(str(found["bytes"]))
    report.largest = max(report.largest, (size if patience == SECONDS else 0, seed))
    report.ends[_kind_of(said)] += 1
    if found["trace"]:
        return f"{said}\n{found['trace']}"
    if size > MEMORY and patience == SECONDS:
        return f"BYTES: {size >> 20} MB more"
    return None


def _kind_of(said: str) -> str:
    return said.split(":", maxsplit=1)[0] if ":" in said else "rows" if said.endswith(" rows") else said
