"""What `check` warns about in a valid file: input that is not there, outputs that cannot be written."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.connectors.formats import SUFFIXES
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.places import OUTPUTS
from headrace.pipeline.spec import FilesFrom, FilesTo
from headrace.pipeline.stalling import may_pause

FORMATS = 'use .jsonl, .csv, .parquet or .arrow, or set format to "json", "csv", "parquet" or "arrow"'


def hazards(pipeline: Pipeline) -> Iterator[str]:
    """A warning for each thing that will go wrong when the pipeline runs."""
    for name, stream in pipeline.read.items():
        source = stream.spec.source
        if isinstance(source, FilesFrom) and stream.of is None:
            yield from _of_files(pipeline, name, source)
        if stream.lateness.latency and pipeline.spec.pipeline.clock == "event" and may_pause(stream):
            yield (
                f"stream {name}: its latency cannot be proven while no rows come, because clock = "
                '"event" moves only with the times of rows; remove clock, or set a timeout under [skew]'
            )
    if pipeline.runtime == "embedded":
        for query in pipeline.queries:
            for key in OUTPUTS:
                sink = getattr(query.spec, key)
                if isinstance(sink, FilesTo) and _has_no_format(sink, sink.path):
                    yield f"query {query.name}: cannot tell the format of {key} {sink.path!r}; {FORMATS}"


def _of_files(pipeline: Pipeline, name: str, source: FilesFrom) -> Iterator[str]:
    """Files that do not exist, or whose format is not known."""
    path = pipeline.path(source.path)
    found = _files(path)
    if not found:
        what = "is empty" if path.is_dir() else "does not exist"
        what = "matches no file" if glob.has_magic(source.path) and not path.exists() else what
        then = "rows come once there is one" if source.follow else "the run will have no rows, or fail"
        yield f"stream {name}: its source {source.path!r} {what}; {then} (relative to {pipeline.root})"
    elif _has_no_format(source, found[0]):
        yield f"stream {name}: cannot tell the format of {found[0]!r}; {FORMATS}"


def _files(path: Path) -> list[str]:
    """The files that would be read."""
    if path.is_dir():
        return sorted(str(each) for each in path.iterdir() if not each.name.startswith((".", "_")))
    return [str(path)] if path.exists() else sorted(glob.glob(str(path), recursive=True))


def _has_no_format(spec: Any, path: str) -> bool:
    return spec.format is None and Path(path).suffix.lower() not in SUFFIXES
