"""`sequence(a, missing(b), repeated(c), mode="recent")`: SEQ, one stream after the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Final

from headrace.builder.builder import Builder, builder
from headrace.builder.expressions import piece
from headrace.builder.statement import Select, SequenceItem, StepItem
from headrace.builder.windows import Keys, duration, listed
from headrace.errors import SqlError
from headrace.sql import Catalog, Code
from headrace.sql.place import nearest
from headrace.time.durations import Duration

MODES: Final = ("recent", "chronicle", "unrestricted", "consecutive")


@dataclass(frozen=True)
class Step:
    """A stream in a sequence: once, not at all, or repeated."""

    of: Builder
    missing: bool = False
    repeated: bool = False


def missing(of: Builder) -> Step:
    """NOT: no row of `of` between the neighbouring steps."""
    return Step(builder(of), missing=True)


def repeated(of: Builder) -> Step:
    """`+`: one or more rows of `of`."""
    return Step(builder(of), repeated=True)


def sequence(
    *steps: Builder | Step,
    mode: str,
    partition_by: Keys | None = None,
    within: Duration | None = None,
    strict: bool = False,
) -> Builder:
    """Match rows of the streams one after the other, as SEQ does in this mode.

    `partition_by` names columns of all steps or equalities of columns, `within` limits the time from the
    first to the last step, and `strict` requires each step to be later than the one before it.
    """
    if mode not in MODES:
        hint = nearest(str(mode), MODES, f"modes: {', '.join(MODES)}")
        raise SqlError(Code.SYNTAX, f"{mode!r} is not a mode of sequences", hint=hint)
    taken = [each if isinstance(each, Step) else Step(builder(each)) for each in steps]
    if not taken:
        raise SqlError(
            Code.SYNTAX,
            "a sequence needs at least two steps",
            hint="write sequence(first, second, mode='recent')",
        )
    keys = [piece(each, "a key").text for each in listed(partition_by)] if partition_by is not None else []
    item = SequenceItem(
        tuple(StepItem(each.of._item(), each.missing, each.repeated) for each in taken),
        mode.upper(),
        tuple(keys),
        "" if within is None else duration(within),
        strict,
    )
    return Builder(reduce(Catalog.merged, (each.of.catalog for each in taken)), Select(item))
