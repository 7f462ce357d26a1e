"""What a running pipeline says of itself, left beside its checkpoint for other terminals to read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.cli.why import KILLED
from headrace.connectors import disk
from headrace.connectors.locking import is_held
from headrace.errors import PipelineError
from headrace.pipeline import Pipeline, load
from headrace.runtimes.embedded import Progress

NAME = "status.json"


def leave(pipeline: Pipeline, progress: Progress) -> None:
    """Write the progress down, whole or not at all. A full disk is for the checkpoint to complain about."""
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
            "a pipeline without a checkpoint leaves no status",
            place=str(file),
            hint='checkpoint = "state" under [pipeline]',
        )
    try:
        status: dict[str, Any] = json.loads((pipeline.path(checkpoint) / NAME).read_text())
    except (OSError, ValueError):
        raise PipelineError(
            "HR-F020",
            "this pipeline has not run yet",
            place=str(pipeline.path(checkpoint)),
            hint=f"headrace run {file}",
        ) from None
    if status["state"] == "running" and not is_held(pipeline.path(checkpoint)):
        status["state"] = KILLED
    return status
