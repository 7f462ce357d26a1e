"""Sequences: rows of several streams that follow each other (Bai et al., §5, Figures 12 and 13).

*Before.* Rows of one partition are processed in order of time. Of simultaneous rows of different steps the
one of the earlier step comes first; with `strict` neither comes before the other. Simultaneous rows of one
step are in the order of `headrace.plan.analysis.ordering`: that of their source, or by content.

*Match so far.* A row of the first step is a match of one step. A row of step k + 1 extends matches of k steps
that came before it and wait in its partition: the mode decides which. If the step's condition holds for the
extended match, it is a match of k + 1 steps, otherwise it is dropped. It then waits for step k + 2, or is a
result, at the time of its last row. So the mode chooses first, and conditions apply to what it chose: in the
words of Figure 12, the join takes the one row that is in the window.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Self

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expressions import Expression
from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import AggregateCall, Plan
from headrace.schema import Schema


class Mode(Enum):
    """Which of the waiting matches a row extends."""

    RECENT = "recent"
    """The most recent one, which stays: a window of one row (Figure 12)."""

    CHRONICLE = "chronicle"
    """The earliest unused one, which is then used, whether the condition holds or not (Figure 13)."""

    UNRESTRICTED = "unrestricted"
    """All of them, and all stay."""

    CONSECUTIVE = "consecutive"
    """The one that ends in the row just before: without another row of the partition in between."""


class StepKind(Enum):
    """How many rows a step matches."""

    ONCE = "once"
    REPEATED = "repeated"
    """`a+`: the longest run of waiting rows. Only for the first step, and not with CONSECUTIVE.

    RECENT: the rows since the last row of the next step that found any, or the same rows again if none came
    since. CHRONICLE: those not used yet. UNRESTRICTED: all. Rows outside `within` never match.
    """

    MISSING = "missing"
    """`NOT c`: a row that meets the condition ends the matches that wait for the next step."""


@dataclass(frozen=True)
class Step:
    """The requirements of a step on the rows of its input.

    `keys` are the partition columns of this input, in the same order as those of the other steps (null is a
    value like any other). `condition` reads the columns bound so far and those of this step; the first step
    has none. `folds` are the aggregates over the rows of a repeated step.
    """

    keys: tuple[str, ...] = ()
    kind: StepKind = StepKind.ONCE
    condition: Expression | None = None
    folds: tuple[AggregateCall, ...] = ()


@dataclass(frozen=True)
class Sequence(Plan):
    """A stream of matches: the columns of all bound steps, at the time of the last row.

    `within`: the last row comes less than this many ticks after the first, as in `[RANGE within]`.
    """

    streams: tuple[Plan, ...]
    steps: tuple[Step, ...]
    mode: Mode = Mode.RECENT
    within: int | None = None
    strict: bool = False

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.streams

    @property
    def is_relation(self) -> bool:
        return False

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return replace(self, streams=inputs)

    @property
    def schema(self) -> Schema:
        return self._schemas[-1]

    @cached_property
    def _schemas(self) -> tuple[Schema, ...]:
        """The columns bound after each step."""
        found: list[Schema] = []
        fields: list[pa.Field] = []
        for stream, step in zip(self.streams, self.steps, strict=True):
            new = self._fields(stream, step)
            clash = {f.name for f in fields} & ({f.name for f in new} | set(stream.schema.names))
            if clash:
                raise PlanError(
                    "HR-P002",
                    f"two steps of a sequence have column {min(clash)!r}",
                    hint="rename one of them",
                )
            fields += new
            found.append(pa.schema(fields))
        return tuple(found)

    @staticmethod
    def _fields(stream: Plan, step: Step) -> list[pa.Field]:
        """The columns that a step adds: aggregates of a repeated step, none of a missing one."""
        if step.kind is StepKind.REPEATED:
            return [pa.field(call.name, result_type(call, stream.schema)) for call in step.folds]
        return [] if step.kind is StepKind.MISSING else list(stream.schema)

    def bound_before(self, step: int) -> Schema:
        """The columns that the steps before this one have bound."""
        return self._schemas[step - 1] if step else pa.schema([])

    def seen_by(self, step: int) -> Schema:
        """The columns that the condition of a step can read: those bound before, and its own."""
        return pa.schema([*self.bound_before(step), *self.streams[step].schema])

    @property
    def bound(self) -> tuple[int, ...]:
        """The steps whose rows are part of a match."""
        return tuple(i for i, step in enumerate(self.steps) if step.kind is not StepKind.MISSING)

    def order_matters(self, step: int) -> bool:
        """Whether the result depends on the order of simultaneous rows of a step."""
        of = self.steps[step]
        if of.kind is StepKind.REPEATED or self.mode is Mode.CONSECUTIVE:
            return True
        if of.kind is StepKind.MISSING or self.mode is Mode.UNRESTRICTED:
            return False
        return self.mode is Mode.CHRONICLE or step != len(self.steps) - 1
