"""Which copy of a row is withdrawn: the oldest with the same row and the same end."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.groups import GroupIndex
from headrace.flow.state import Cell, Part
from headrace.operators.accumulators.forest import CHANGE, COUNT, GROUP, KEY, Forest
from headrace.operators.accumulators.instants import Ints, Mask
from headrace.plan.nodes import (
    Granularity,
    Join,
    Plan,
    Project,
    Select,
    SlidingAggregate,
    Table,
    Union,
    Window,
)
from headrace.plan.session import SessionAggregate
from headrace.plan.windows import Rows, Unbounded
from headrace.schema import Schema

_KEEPS_ENDS = (Select, Project, Union, Join, Granularity, Table)


def may_withdraw(plan: Plan) -> bool:
    """Whether elements of `plan` may be withdrawn before the end that they came with."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Rows)
    if isinstance(plan, (SlidingAggregate, SessionAggregate)):
        return False
    return not isinstance(plan, _KEEPS_ENDS) or any(may_withdraw(below) for below in plan.inputs)


def lasts_for_ever(plan: Plan) -> bool:
    """Whether what is once valid in `plan` is valid for ever."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Unbounded)
    if isinstance(plan, Table):
        return True
    return isinstance(plan, (Select, Project, Union, Join)) and all(map(lasts_for_ever, plan.inputs))


class Numbering:
    """Gives elements ascending numbers in the order of rows, and a withdrawal that of what it withdraws.

    Where nothing may be withdrawn, contents are not looked at.
    """

    def __init__(self, schema: Schema, tracks: bool) -> None:
        self._tracks = tracks
        self._contents = GroupIndex(pa.schema([*schema, pa.field("end of validity", pa.int64())]))
        self._copies = Forest()
        self._next = Cell(number=0)

    def number(self, batch: Batch, lines: Ints, number: int, content: int) -> None:
        """Fill in the numbers and contents of a batch's elements, which are in their order."""
        size = len(batch)
        lines[:, number] = np.arange(self._next["number"], self._next["number"] + size)
        self._next["number"] += size
        if not self._tracks:
            return
        contents = self._contents.codes([*batch.data.columns, pa.array(batch.end)], size)
        self._copies.reserve(len(self._contents), size)
        signs = batch.signs().astype(np.int64)
        order = np.lexsort((-signs, batch.start))
        numbers = np.ascontiguousarray(lines[order, number])
        self._copies.match(contents[order], signs[order], numbers)
        lines[order, number] = numbers
        lines[:, content] = contents

    def expire(self, contents: Ints, numbers: Ints, signs: Ints) -> None:
        """Elements have ended; those of withdrawals make up for those of what they withdrew."""
        if not self._tracks or not len(contents):
            return
        changes = np.zeros((len(contents), CHANGE), np.int64)
        changes[:, KEY], changes[:, COUNT], changes[:, GROUP] = numbers, signs, contents
        self._copies.reserve(len(self._contents), len(changes))
        self._copies.change(changes)

    def forget(self, pending: Ints) -> Ints | None:
        """Forget contents without copies that are not `pending`, if these are most; gives old → new codes."""
        if not self._tracks:
            return None
        self._copies.reserve(len(self._contents), 0)
        keep: Mask = self._copies.held()
        keep[pending] = True
        if 2 * int(np.count_nonzero(keep)) > len(keep) or not len(keep):
            self._copies.tidy()
            return None
        new = self._contents.compact(keep)
        self._copies.remap(new, keep)
        return new

    def state(self) -> dict[str, Part]:
        """What a snapshot holds."""
        if not self._tracks:
            return {"next": self._next}
        return {"next": self._next, "contents": self._contents, "copies": self._copies}
