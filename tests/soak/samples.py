"""What a running pipeline holds: read from /proc and from its checkpoint, without asking the process."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

STATE: Final = "state"


def sample(pid: int, root: Path, begun: float) -> dict[str, Any] | None:
    """One sample; None if the process has gone or has not said anything yet."""
    status = told(root)
    try:
        words = Path(f"/proc/{pid}/status").read_text()
        handles = len(os.listdir(f"/proc/{pid}/fd"))
        cpu = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return None
    if status is None or "VmRSS" not in words:
        return None
    kept = root / STATE
    inside = {name: kept / name for name in ("spill", "spool")}
    return {
        "at": time.monotonic() - begun,
        "pid": pid,
        "rss": _proc(words, "VmRSS") * 1024,
        "anonymous": _proc(words, "RssAnon") * 1024,
        "handles": handles,
        "threads": _proc(words, "Threads"),
        "cpu": sum(map(int, cpu)) / os.sysconf("SC_CLK_TCK"),
        "checkpoint": size(kept) - sum(size(each) for each in inside.values()),
        "spill": size(inside["spill"]),
        "spool": size(inside["spool"]),
        "record": _record(kept),
        "state": status["state_bytes"],
        "spilled": status["spilled_bytes"],
        "held": status["state_bytes"] + status["spilled_bytes"],
        "checkpoints": status["checkpoints"],
        "streams": {
            name: {key: stream[f"rows_{key}"] for key in ("in", "processed", "late", "rejected")}
            for name, stream in status["streams"].items()
        },
        "operators": status["operators"],
        "promised": all(stream["heartbeat"] is not None for stream in status["streams"].values()),
    }


def told(root: Path) -> dict[str, Any] | None:
    """The progress that the run leaves beside its checkpoint."""
    try:
        status: dict[str, Any] = json.loads((root / STATE / "status.json").read_text())
    except (OSError, ValueError):
        return None
    return status


def _proc(words: str, key: str) -> int:
    found = re.search(rf"^{key}:\s+(\d+)", words, re.M)
    return int(found[1]) if found else 0


def size(path: Path) -> int:
    """Bytes of all files below a path. Files may go while we look."""
    return sum(_sizes(path))


def _sizes(path: Path) -> Iterable[int]:
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
            except OSError:
                continue


def _record(kept: Path) -> int:
    """The size of the newest commit record."""
    names = (each.name for each in kept.iterdir())
    newest = max((name for name in names if re.fullmatch(r"commit-\d+", name)), default=None)
    try:
        return 0 if newest is None else (kept / newest).stat().st_size
    except OSError:
        return 0
