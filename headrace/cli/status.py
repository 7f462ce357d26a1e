"""The status of a running pipeline, written to its checkpoint directory for other terminals to read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace import disk
from headrace.cli.why import KILLED
from headrace.disk import is_held
from headrace.errors import PipelineError
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Progress

NAME = "status.json"


def write_status(pipeline: Pipeline, progress: Progress) -> None:
    """Write the status file atomically. Disk errors are ignored: the checkpoint reports them."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        return
    path = pipeline.path(checkpoint) / NAME
    draft = path.with_suffix(".draft")
    try:
        with disk.current.open(draft, "wb", private=True) as file:
            file.write(json.dumps(asdict(progress)).encode())
        disk.current.replace(draft, path)
    except OSError:
        return


def read(file: Path) -> dict[str, Any]:
    """The newest progress of a pipeline."""
    pipeline = load(file)
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        raise PipelineError(
            "HR-F020",
            "this pipeline has no checkpoint, so it writes no status",
            place=str(file),
            hint='set checkpoint = "state" under [pipeline]',
        )
    try:
        status: dict[str, Any] = json.loads((pipeline.path(checkpoint) / NAME).read_text())
    except (OSError, ValueError):
        raise PipelineError(
            "HR-F020",
            "this pipeline has not run yet",
            place=str(pipeline.path(checkpoint)),
            hint=f"run it: headrace run {file}",
        ) from None
    if status["state"] == "running" and not is_held(pipeline.path(checkpoint)):
        status["state"] = KILLED
    return status
