"""`headrace experiment`: the papers' figures, which are part of the source, not of the package."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import Any

from headrace.errors import PipelineError


def checkout() -> Path:
    """The repository that this package is part of, or the one we stand in."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / "experiments" / "table.py").exists() and (root / "benchmarks").is_dir():
            return root
    raise PipelineError(
        "HR-F050",
        "the experiments are not here: they are part of Headrace's source, not of the installed package",
        hint="get the source, run `make setup` in it, and start this command there",
    )


def load() -> Any:
    """The module that runs experiments."""
    root = str(checkout())
    if root not in sys.path:
        sys.path.insert(0, root)
    return importlib.import_module("experiments.running")


def experiment(names: list[str], full: bool, real: bool, listed: bool) -> bool:
    """List them, or run some; whether every claim holds."""
    running = load()
    if listed or not names:
        print(running.listing())
        return True
    known = list(running.EXPERIMENTS)
    for name in names:
        if name not in (*known, "all"):
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}, all"
            raise PipelineError("HR-F051", f"no experiment {name!r}", hint=hint)
    chosen = known if "all" in names else names
    conditions = running.Conditions("full" if full else "default", real=real)
    held: bool = running.run(chosen, conditions)
    return held
