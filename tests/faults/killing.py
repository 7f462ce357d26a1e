"""Runs a pipeline in processes of its own and kills them, again and again, until one comes through."""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from tests.runtimes.embedded.pipelines import run

CONTEXT = multiprocessing.get_context("forkserver")
MANY = 1 << 30
CONTEXT.set_forkserver_preload(["headrace.pipeline", "headrace.runtimes.embedded"])


def commits(root: Path) -> int:
    """How many commits there were, as the checkpoint's directory shows."""
    state = root / "state"
    if not state.exists():
        return 0
    found = (re.fullmatch(r"commit-(\d+)", each.name) for each in state.iterdir())
    return max((int(match[1]) + 1 for match in found if match), default=0)


def start(pipeline: Path) -> BaseProcess:
    """A process that runs the pipeline."""
    process = CONTEXT.Process(target=run, args=(str(pipeline),))
    process.start()
    return process


def run_with_kills(pipeline: Path, kills: int, seed: int, came_through: Callable[[], None]) -> None:
    """Kill -9 after a random number of commits and a random while more, until `kills` hit a living process.

    Each time a run comes through, it is looked at, and another begins from nothing.
    """
    rng = np.random.default_rng(seed)
    hits = 0
    while True:
        process = start(pipeline)
        wanted = commits(pipeline.parent) + int(rng.integers(0, 10)) if hits < kills else MANY
        while process.is_alive() and commits(pipeline.parent) < wanted:
            process.join(0.002)
        process.join(float(rng.random()) * 0.06)
        hit = process.is_alive()
        process.kill()
        process.join()
        hits += hit
        if not hit:
            assert process.exitcode == 0
            came_through()
            if hits >= kills:
                return
