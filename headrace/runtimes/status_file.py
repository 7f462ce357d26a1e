"""The status file in a checkpoint directory: the run writes it, other programs read it."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace import disk
from headrace.errors import PipelineError
from headrace.pipeline import Pipeline, load
from headrace.runtimes.status import (
    EMBEDDED_FILE,
    KILLED,
    RUNNING,
    SPARK_FILE,
    STARTING,
    STOPPED,
    Status,
)

SPARK_JOB: Final = Path("spark", "job", SPARK_FILE)
SPARK_LOCK: Final = Path("spark", "_headrace.lock")
"""What a run on Spark has in the checkpoint directory of a pipeline."""
JOB_LOCK: Final = Path("_headrace.lock")
"""What a job on Spark that was made in Python has in its checkpoint directory."""


_NO_STATUS: Final = "there is no status in this directory"


def write_status(pipeline: Pipeline, status: Status) -> None:
    """Write the status of an embedded run atomically. Disk errors are ignored: checkpoints report them."""
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        return
    path = pipeline.path(checkpoint) / EMBEDDED_FILE
    draft = path.with_suffix(".draft")
    try:
        with disk.current.open(draft, "wb", private=True) as file:
            file.write(status.text().encode())
        disk.current.replace(draft, path)
    except OSError:
        return


def read(path: Path) -> Status:
    """The newest status of the pipeline in a file, or of what runs on a checkpoint directory."""
    if not path.is_dir():
        return read_status(load(path))
    job = _read(path / SPARK_FILE)
    if job is None:
        return _newest(path, _NO_STATUS, "name a pipeline file, or the checkpoint of a job")
    # Only the driver knows how a job of Python has ended.
    return replace(job, state=STOPPED) if _claims_to_run(job) and not _is_locked(path / JOB_LOCK) else job


def read_status(pipeline: Pipeline) -> Status:
    """The newest status of a pipeline, on either runtime."""
    file = pipeline.file or pipeline.name
    checkpoint = pipeline.spec.pipeline.checkpoint
    if checkpoint is None:
        raise PipelineError(
            "HR-F020",
            "this pipeline has no checkpoint, so it writes no status",
            place=str(file),
            hint='set checkpoint = "state" under [pipeline]',
        )
    return _newest(pipeline.path(checkpoint), "this pipeline has not run yet", f"run it: headrace run {file}")


def _newest(folder: Path, nothing: str, hint: str) -> Status:
    """The newest status of a pipeline in its checkpoint directory; what to say if there is none."""
    found = [status for each in (EMBEDDED_FILE, SPARK_JOB) if (status := _read(folder / each)) is not None]
    if not found:
        raise PipelineError("HR-F020", nothing, place=str(folder), hint=hint)
    status = max(found, key=lambda each: each.written)
    if _claims_to_run(status) and not _is_alive(status, folder):
        return replace(status, state=KILLED)
    return status


def _claims_to_run(status: Status) -> bool:
    return status.state in (RUNNING, STARTING)


def _read(path: Path) -> Status | None:
    """The status in a file; None if there is none, or if another version wrote it."""
    try:
        return Status.read(path.read_text())
    except (OSError, ValueError):
        return None


def _is_alive(status: Status, folder: Path) -> bool:
    """Whether the run holds the lock of its checkpoint."""
    return _is_locked(folder / SPARK_LOCK) if status.runtime == "spark" else disk.is_held(folder)


def _is_locked(path: Path) -> bool:
    """Whether the JVM of a driver holds a lock file."""
    try:
        with path.open("rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False
