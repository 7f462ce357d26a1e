"""`headrace experiment` and `headrace bench`: both need the source tree, not just the package."""

from __future__ import annotations

import difflib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.errors import PipelineError


def checkout() -> Path:
    """The repository of this package, or the one in the current directory."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / "experiments" / "table.py").exists() and (root / "benchmarks").is_dir():
            return root
    raise PipelineError(
        "HR-F050",
        "experiments and benchmarks are part of the source tree, not of the installed package",
        hint="clone the repository, run `make setup` there, and repeat this command in it",
    )


def load() -> Any:
    """The module that runs experiments."""
    root = str(checkout())
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module("experiments.running")


def experiment(names: list[str], full: bool, real: bool, listed: bool) -> bool:
    """List or run experiments. Returns whether every claim holds."""
    running = load()
    if listed or not names:
        print(running.listing())
        return True
    known = list(running.EXPERIMENTS)
    for name in names:
        if name not in (*known, "all"):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}, all"
            raise PipelineError("HR-F051", f"the experiment {name!r} does not exist", hint=hint)
    chosen = known if "all" in names else names
    conditions = running.Conditions("full" if full else "default", real=real)
    held: bool = running.run(chosen, conditions)
    return held


# `headrace bench`


PEERS = "peers"
OPTIONS = {"nexmark": ("runtime", "events", "queries")}
"""The options of each benchmark; the others take none."""


def modules(root: Path) -> dict[str, str]:
    """The benchmarks by name: each is a module that runs."""
    found = {path.stem.removesuffix("_bench"): path.stem for path in (root / "benchmarks").glob("*_bench.py")}
    return {name: f"benchmarks.{found[name]}" for name in sorted(found)} | {PEERS: "benchmarks.peers.run"}


def listing() -> str:
    """A line for each benchmark: its name and the first line of its docstring."""
    root = checkout()
    lines = []
    for name, module in modules(root).items():
        text = (root / Path(*module.split(".")).with_suffix(".py")).read_text()
        lines.append(f"{name:<10} {text.removeprefix(chr(34) * 3).partition(chr(10))[0]}")
    return "\n".join(lines)


def bench(name: str, runtime: str | None, events: int | None, queries: list[str]) -> int:
    """Run a benchmark in a separate process; its exit code is 1 if a value is below its floor."""
    root = checkout()
    known = modules(root)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1) or [", ".join(known)]
        raise PipelineError("HR-F053", f"the benchmark {name!r} does not exist", hint=f"try {near[0]}")
    given = {"runtime": runtime, "events": events, "queries": queries}
    for option, value in given.items():
        if value and option not in OPTIONS.get(name, ()):
            raise PipelineError("HR-F054", f"{name} does not take {option}", hint="only nexmark does")
    more = [f"--{option}={value}" for option, value in (("runtime", runtime), ("events", events)) if value]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    argv = [sys.executable, "-m", known[name], *queries, *more]
    return subprocess.run(argv, check=False, cwd=root, env=environment).returncode
