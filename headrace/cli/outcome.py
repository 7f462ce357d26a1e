"""What a run has brought: the first answers of each query, and where its outputs are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pyarrow as pa

from headrace.frames.result import text_table
from headrace.pipeline import Pipeline, PipelineQuery
from headrace.pipeline.spec import FilesTo
from headrace.runtimes.embedded.outputs import FIRST, Outputs

__all__ = ["FIRST", "first_answers", "places"]


def first_answers(pipeline: Pipeline, outputs: Outputs) -> Iterator[str]:
    """Lines for the end of a run; a query without new answers shows only where its outputs are."""
    for query in pipeline.queries:
        found = outputs.queries.get(query.name)
        if found is None or query.spec.sink.type == "stdout":
            continue
        if found.first:
            rows = sum(each.num_rows for each in found.first)
            yield f"\n  first {'answer' if rows == 1 else f'{rows} answers'} of {query.name}:"
            yield textwrap.indent(text_table(pa.Table.from_batches(found.first)), "    ")
        yield from places(pipeline, query)


def places(pipeline: Pipeline, query: PipelineQuery) -> Iterator[str]:
    """A line with the files that a query has written."""
    written = {"answers": query.spec.sink, "late": query.spec.late, "rejected": query.spec.rejected}
    paths = [
        f"{what} in {pipeline.path(each.path)}"
        for what, each in written.items()
        if isinstance(each, FilesTo) and pipeline.path(each.path).exists()
    ]
    if paths:
        yield f"  {query.name}: {', '.join(paths)}"
