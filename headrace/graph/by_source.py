"""Which operators answer a group when its own source is complete, not all sources of its streams.

That takes groups by the column that tells the sources of a stream apart: each group then has one source.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.flow.arc import Reader
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.graph.source import SourceNode
from headrace.operators.early_results import EarlySessionsOperator
from headrace.operators.group_progress import GroupProgress
from headrace.plan.analysis.by_source import key_of_sources
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.time.sources import SourcesPromise


def set_progress(graph: Graph) -> None:
    """Connect the operators that answer by source with their streams; call it when either has changed."""
    for source in graph.sources.values():
        source.by_source = []
    for node in graph.nodes:
        if isinstance(node.operator, EarlySessionsOperator):
            _connect(node, node.operator)


def _connect(node: Node, operator: EarlySessionsOperator) -> None:
    """Let an operator follow the sources of its groups, if it can."""
    plan, streams = node.plan, sources_behind(node)
    assert isinstance(plan, (EarlyWindows, EarlySessions))
    key = key_of_sources(plan.input, plan.partition_keys, _columns(streams))
    if key is None:
        operator.progress = None
        return
    between = list(dict.fromkeys(_between(node)))
    readers: list[Reader] = [reader for each in between for reader in each.operator.inputs]
    operator.progress = GroupProgress(key, streams, readers)
    for stream in streams:
        stream.by_source.append(node)
    for each in between:
        each.clears = list(dict.fromkeys([*each.clears, node]))


def _columns(streams: list[SourceNode]) -> dict[str, str]:
    """The column that names the source of a row, where a row that breaks its source's promise is late."""
    found = {stream.name: (stream.promise, stream.rules.enforce) for stream in streams}
    return {
        name: promise.by.column
        for name, (promise, enforce) in found.items()
        if isinstance(promise, SourcesPromise) and enforce == "strict"
    }


def _between(node: Node) -> Iterator[Node]:
    """The operators between the streams and a node."""
    for before in node.predecessors:
        if isinstance(before, Node):
            yield before
            yield from _between(before)
