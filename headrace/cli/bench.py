"""`headrace bench`: the benchmarks, which are part of the source, not of the package."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

from headrace.cli.experiment import checkout
from headrace.errors import PipelineError

PEERS = "peers"
OPTIONS = {"nexmark": ("runtime", "events", "queries")}
"""Which benchmarks take which options; the others take none."""


def modules(root: Path) -> dict[str, str]:
    """The benchmarks by name: each is a module that runs."""
    found = {path.stem.removesuffix("_bench"): path.stem for path in (root / "benchmarks").glob("*_bench.py")}
    return {name: f"benchmarks.{found[name]}" for name in sorted(found)} | {PEERS: "benchmarks.peers.run"}


def listing() -> str:
    """A line for each benchmark: its name, and the first sentence of what it says of itself."""
    root = checkout()
    lines = []
    for name, module in modules(root).items():
        text = (root / Path(*module.split(".")).with_suffix(".py")).read_text()
        lines.append(f"{name:<10} {text.removeprefix(chr(34) * 3).partition(chr(10))[0]}")
    return "\n".join(lines)


def bench(name: str, runtime: str | None, events: int | None, queries: list[str]) -> int:
    """Run a benchmark in a process of its own; its exit code, 1 if a floor is not reached."""
    root = checkout()
    known = modules(root)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1) or [", ".join(known)]
        raise PipelineError("HR-F053", f"no benchmark {name!r}", hint=f"there is {near[0]}")
    given = {"runtime": runtime, "events": events, "queries": queries}
    for option, value in given.items():
        if value and option not in OPTIONS.get(name, ()):
            raise PipelineError("HR-F054", f"{name} takes no {option}", hint="only nexmark does")
    more = [f"--{option}={value}" for option, value in (("runtime", runtime), ("events", events)) if value]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    argv = [sys.executable, "-m", known[name], *queries, *more]
    return subprocess.run(argv, check=False, cwd=root, env=environment).returncode
