"""Random patterns over a given stream (hypothesis strategies).

The oracle tries one way after the other, so there are few ways: few rows, or no repetition in a repetition.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from hypothesis import strategies as st

from headrace.expressions import Expression
from headrace.plan.nodes.core import AggregateCall, Plan
from headrace.plan.nodes.match import (
    After,
    Chain,
    Either,
    Fold,
    Match,
    One,
    Pattern,
    Pick,
    Repeat,
    Skip,
    Term,
    Variable,
    variables_of,
)
from headrace.schema import Schema
from tests.strategies.schemas import TYPES, is_exact, names_of, predicates

NAMES: Final = ("A", "B", "C")
COUNTS: Final = ((0, None), (1, None), (0, 1), (2, 2), (1, 2), (0, 3), (2, None))


def match_of(draw: st.DrawFn, stream: Plan, simple: bool = False, tests: bool = True) -> Match:
    """A pattern over a stream; a `simple` one has a single repetition, for inputs of many rows."""
    below = stream.schema
    pattern = _single(draw) if simple else _pattern(draw, 2)
    if pattern.may_be_empty:
        pattern = Chain((One("A"), pattern))
    pattern = _guarded(draw, pattern) if draw(st.booleans()) else pattern
    pattern = _lapsing(draw, pattern) if draw(st.sampled_from([False, False, True])) else pattern
    names = sorted(set(variables_of(pattern)))
    prefix = _free(stream)
    tested = tests and draw(st.sampled_from([False, False, True]))
    variables = tuple(_variable(draw, name, names, below, prefix, tested) for name in names)
    keys = names_of(below, *TYPES)
    partition = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) if keys else []
    measures = [_term(draw, f"{prefix}m{i}", names, below) for i in range(draw(st.integers(1, 3)))]
    skip = _skip(draw, names)
    within = draw(st.none() | st.integers(1, 9))
    skips = draw(st.booleans())
    gate = draw(predicates(below)) if draw(st.sampled_from([False, False, False, True])) else None
    return Match(stream, tuple(partition), pattern, variables, tuple(measures), skip, within, skips, gate)


def _free(stream: Plan) -> str:
    """What no column's name begins with."""
    prefix = "of"
    while any(name.startswith(prefix) for name in stream.schema.names):
        prefix += "_of"
    return prefix


def _pattern(draw: st.DrawFn, depth: int) -> Pattern:
    """A chain of variables, repetitions, and, if it may be deep, of alternations and groups."""
    parts = [_part(draw, depth) for _ in range(draw(st.sampled_from([1, 2, 2, 3])))]
    return parts[0] if len(parts) == 1 else Chain(tuple(parts))


def _single(draw: st.DrawFn) -> Pattern:
    """Variables, one of them repeated."""
    parts: list[Pattern] = [One(name) for name in draw(st.lists(st.sampled_from(NAMES), max_size=2))]
    least, most = draw(st.sampled_from(COUNTS))
    repeated = Repeat(One(draw(st.sampled_from(NAMES))), least, most, draw(st.booleans()))
    parts.insert(draw(st.integers(0, len(parts))), repeated)
    return Chain(tuple(parts))


def _part(draw: st.DrawFn, depth: int) -> Pattern:
    kind = draw(st.sampled_from(["one", "one", "repeat", "repeat", *["either", "group"] * (depth > 1)]))
    if kind == "either":
        return Either(tuple(_pattern(draw, depth - 1) for _ in range(2)))
    part: Pattern = One(draw(st.sampled_from(NAMES)))
    if kind == "one":
        return part
    if kind == "group":
        part = _pattern(draw, depth - 1)
    least, most = draw(st.sampled_from(COUNTS))
    return Repeat(part, least, most, draw(st.booleans()))


def _guarded(draw: st.DrawFn, pattern: Pattern) -> Pattern:
    """The pattern with variables that must not come before some of its rows."""
    if isinstance(pattern, One):
        return One(pattern.variable, draw(st.none() | st.sampled_from(NAMES)))
    if isinstance(pattern, Repeat):
        return Repeat(_guarded(draw, pattern.part), pattern.least, pattern.most, pattern.greedy)
    return type(pattern)(tuple(_guarded(draw, part) for part in pattern.parts))


def _lapsing(draw: st.DrawFn, pattern: Pattern) -> Pattern:
    """The pattern with rows that come so many ticks after another, or from which time is not counted."""
    if isinstance(pattern, One):
        lapse = draw(st.sampled_from([None, None, 1, 2, 5]))
        return One(pattern.variable, pattern.unless, lapse, draw(st.sampled_from([True, True, False])))
    if isinstance(pattern, Repeat):
        return Repeat(_lapsing(draw, pattern.part), pattern.least, pattern.most, pattern.greedy)
    return type(pattern)(tuple(_lapsing(draw, part) for part in pattern.parts))


def _variable(
    draw: st.DrawFn, name: str, names: list[str], below: Schema, prefix: str, tested: bool
) -> Variable:
    condition = draw(predicates(below)) if draw(st.sampled_from([True, True, False])) else None
    if not tested or draw(st.booleans()):
        return Variable(name, condition)
    count = draw(st.integers(1, 2))
    terms = tuple(_term(draw, f"{prefix}{name}{i}", names, below) for i in range(count))
    seen = Match(_Empty(below), (), One(name), (), ()).seen_by(Variable(name, terms=terms))
    return Variable(name, condition, _test(draw, seen), terms)


class _Empty(Plan):
    """Something with these columns."""

    def __init__(self, columns: Schema) -> None:
        self._columns = columns

    @property
    def schema(self) -> Schema:
        return self._columns


def _test(draw: st.DrawFn, seen: Schema) -> Expression:
    return draw(predicates(seen))


def _term(draw: st.DrawFn, name: str, names: list[str], below: Schema) -> Term:
    """A column of a row, or an aggregate; the name says whether sums over it are exact."""
    variables = tuple(draw(st.sampled_from([(), *((each,) for each in names), tuple(names)])))
    column = draw(st.sampled_from(below.names))
    summed = [each for each in names_of(below, pa.int64(), pa.float64()) if is_exact(each)]
    function = draw(st.sampled_from(["pick", "pick", "count", "min", "max", "count_distinct", "sum", "avg"]))
    if function in ("sum", "avg") and summed:
        column = draw(st.sampled_from(summed))
    exact = is_exact(column) and function != "avg"
    name = name if exact else f"{name}_avg"
    if function == "pick" or (function in ("sum", "avg") and not summed):
        return Pick(name, column, variables, draw(st.booleans()), draw(st.sampled_from([0, 0, 0, 1, 2])))
    if function == "count" and draw(st.booleans()):
        return Fold(AggregateCall(name, "count"), variables)
    return Fold(AggregateCall(name, function, column), variables)


def _skip(draw: st.DrawFn, names: list[str]) -> Skip:
    after = draw(st.sampled_from(list(After)))
    named = after in (After.TO_FIRST, After.TO_LAST)
    return Skip(after, draw(st.sampled_from(names)) if named else None)
