"""Whether each group of an aggregate has one source, where sources of a stream are told apart by a column.

Then a group can be answered when its own source is complete (`headrace.operators.group_progress`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from headrace.expressions import Column
from headrace.plan.analysis.ordering import INSENSITIVE, Expand
from headrace.plan.nodes.core import Plan, Project, RStream, Select, SlidingAggregate, Source, Union
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import sources_of
from headrace.plan.nodes.unnest import Unnest

Columns = Mapping[str, str]
"""By stream, the column that names the source of a row."""


def answers_by_source(plan: Plan, columns: Columns) -> bool:
    """Whether the last aggregate of a plan has groups with one source each."""
    if isinstance(plan, (*INSENSITIVE, RStream)):
        return answers_by_source(plan.inputs[0], columns)
    if isinstance(plan, Union):
        return any(answers_by_source(branch, columns) for branch in plan.branches)
    if isinstance(plan, SessionAggregate):
        return key_of_sources(plan.input, plan.partition_keys, columns) is not None
    if isinstance(plan, SlidingAggregate):
        return key_of_sources(plan.input, plan.keys, columns) is not None
    return False


def key_of_sources(plan: Plan, keys: Sequence[str], columns: Columns) -> int | None:
    """The place of the key that names the source of every row of `plan`; None if there is none."""
    wanted = {(source.name, columns.get(source.name)) for source in sources_of(plan)}
    if not wanted or any(column is None for _, column in wanted):
        return None
    return next((i for i, key in enumerate(keys) if set(_origins(plan, key)) == wanted), None)


def _origins(plan: Plan, column: str) -> Iterator[tuple[str, str | None]]:
    """The columns of streams whose values a column has: the name of the stream, and the column or None."""
    if isinstance(plan, Source):
        yield plan.name, column
    elif isinstance(plan, Project):
        found = dict(plan.columns)[column]
        yield from _origins(plan.input, found.name) if isinstance(found, Column) else _UNKNOWN
    elif isinstance(plan, Union):
        place = plan.schema.get_field_index(column)
        for branch in plan.branches:
            yield from _origins(branch, branch.schema.names[place])
    elif isinstance(plan, (Select, Expand, Unnest)) and column in plan.input.schema.names:
        yield from _origins(plan.input, column)
    else:
        yield from _UNKNOWN


_UNKNOWN: Final = (("", None),)
