"""`headrace why --answers`: reads the newest checkpoint of a pipeline, beside a run or after it."""

from __future__ import annotations

from pathlib import Path

from headrace.engine.unfinished import unfinished
from headrace.errors import DurabilityError, PipelineError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.why.answers import Answers


def waiting(file: Path, most: int) -> Answers:
    """The answers that wait, as of the newest checkpoint; a run that replaces it meanwhile is read again."""
    pipeline = load(file)
    if pipeline.runtime == "spark":
        raise PipelineError(
            "HR-F164",
            "the state of a pipeline on Spark is in Spark's state store, which only its job can read",
            place=str(file),
            hint="headrace why, without --answers, says what its queries wait for",
        )
    for last in (False, False, True):
        try:
            engine = Runner(pipeline).peek()
            break
        except DurabilityError:
            if last:
                raise
    if engine is None:
        raise PipelineError(
            "HR-F020",
            "this pipeline has no checkpoint yet, so nothing is known about its answers",
            place=str(file),
            hint='set checkpoint = "state" under [pipeline], and run it',
        )
    return Answers(tuple(unfinished(engine, engine)), engine.now, pipeline.ticks_per_second, most)
