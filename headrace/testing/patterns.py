"""The meaning of MATCH_RECOGNIZE, computed the naive way: `plan.nodes.match` defines it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from headrace.expressions import Expression, evaluator
from headrace.plan.nodes.match import After, Chain, Either, Match, One, Pattern, Pick, Repeat, Term
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.schema import Schema
from headrace.testing.compare import Row, canonical_row
from headrace.testing.folds import fold, fold_user


class Taken(NamedTuple):
    """A row of a match: its place in the partition, its variable, and whether time is counted from it."""

    place: int
    name: str
    counts: bool = True


Path = tuple[Taken, ...]
"""The rows of a match, in order."""


def pattern_matches(plan: Match, rows: Sequence[tuple[int, Row]]) -> list[tuple[int, Row]]:
    """Every match, with the time of its last row; rows are in order, with their times."""
    below = plan.input.schema
    partitions: dict[Row, list[tuple[int, Row]]] = defaultdict(list)
    for time, row in rows:
        partitions[tuple(row[below.names.index(key)] for key in plan.keys)].append((time, row))
    found = [
        (time, key + measured)
        for key, each in partitions.items()
        for time, measured in Search(plan, each).run()
    ]
    return sorted(found, key=lambda each: each[0])


class Search:
    """Backtracks through the rows of one partition."""

    def __init__(self, plan: Match, rows: Sequence[tuple[int, Row]]) -> None:
        self._plan, self._below = plan, plan.input.schema
        self._times, self._rows = [time for time, _ in rows], [row for _, row in rows]
        self._variables = {variable.name: variable for variable in plan.variables}
        self._conditions = {
            v.name: (_condition(v.condition, self._below), _condition(v.test, plan.seen_by(v)))
            for v in plan.variables
        }
        self._gate = _condition(plan.gate, self._below)
        self._end = 0

    def run(self) -> Iterator[tuple[int, Row]]:
        """The matches, in the order of the search."""
        begin = 0
        while begin < len(self._rows):
            path = self._first(begin)
            if path is None:
                begin += 1
                continue
            values = canonical_row(self._value(term, path) for term in self._plan.measures)
            yield self._times[path[-1].place], values
            begin = self._goes_on(begin, path)

    def _first(self, begin: int) -> Path | None:
        """The preferred match that begins at a row."""
        if not self._gate(dict(zip(self._below.names, self._rows[begin], strict=True))):
            return None
        self._end = len(self._rows)
        if self._plan.within is not None:
            last = self._times[begin] + self._plan.within
            self._end = next((i for i in range(begin, self._end) if self._times[i] >= last), self._end)
        ways = self._ways(self._plan.pattern, begin, ())
        if not self._plan.skips:
            return next(ways, None)
        return min(ways, key=lambda way: way[-1].place, default=None)

    def _goes_on(self, begin: int, path: Path) -> int:
        """Where the search goes on after a match."""
        skip = self._plan.skip
        if skip.after is After.PAST_LAST_ROW:
            return path[-1].place + 1
        places = [each.place for each in path if each.name == skip.variable]
        if skip.after is After.TO_NEXT_ROW or not places:
            return begin + 1
        return max(begin + 1, places[0 if skip.after is After.TO_FIRST else -1])

    # ----------------------------------------------------------------------------------------------- ways

    def _ways(self, pattern: Pattern, at: int, path: Path) -> Iterator[Path]:
        """The ways to match a pattern from a row on, preferred ones first."""
        if isinstance(pattern, One):
            if (place := self._taken(pattern, at, path)) is not None:
                yield (*path, Taken(place, pattern.variable, pattern.counts))
        elif isinstance(pattern, Chain):
            yield from self._chain(pattern.parts, at, path)
        elif isinstance(pattern, Either):
            for part in pattern.parts:
                yield from self._ways(part, at, path)
        else:
            yield from self._repeat(pattern, 0, at, path)

    def _taken(self, one: One, at: int, path: Path) -> int | None:
        """The row that a variable takes: the next one or, if rows may be in between, the first that fits."""
        last = self._end if self._plan.skips and path else min(at + 1, self._end)
        for place in range(at, last):
            if self._plan.skips and one.unless is not None and self._holds(one.unless, place, path):
                return None
            if self._lapsed(one, place, path) and self._holds(one.variable, place, path):
                return place
        return None

    def _lapsed(self, one: One, place: int, path: Path) -> bool:
        """Whether a row comes as long after the last one that counts as it has to."""
        if one.after is None:
            return True
        before = [each.place for each in path if each.counts]
        return bool(before) and self._times[place] - self._times[before[-1]] == one.after

    def _chain(self, parts: Sequence[Pattern], at: int, path: Path) -> Iterator[Path]:
        if not parts:
            yield path
            return
        for way in self._ways(parts[0], at, path):
            yield from self._chain(parts[1:], _after(way, at), way)

    def _repeat(self, pattern: Repeat, done: int, at: int, path: Path) -> Iterator[Path]:
        """The repetitions that are left; an optional one takes at least one row."""
        if done >= pattern.least and not pattern.greedy:
            yield path
        if pattern.most is None or done < pattern.most:
            for way in self._ways(pattern.part, at, path):
                if done < pattern.least or len(way) > len(path):
                    yield from self._repeat(pattern, done + 1, _after(way, at), way)
        if done >= pattern.least and pattern.greedy:
            yield path

    def _holds(self, name: str, at: int, path: Path) -> bool:
        """Whether a row can be a row of a variable."""
        variable = self._variables[name]
        condition, test = self._conditions[name]
        row = dict(zip(self._below.names, self._rows[at], strict=True))
        if not condition(row):
            return False
        extended = (*path, Taken(at, name))
        terms = canonical_row(self._value(term, extended) for term in variable.terms)
        return test(row | dict(zip([term.name for term in variable.terms], terms, strict=True)))

    # --------------------------------------------------------------------------------------------- values

    def _value(self, term: Term, path: Path) -> Any:
        """A value over the rows of some variables."""
        rows = [self._rows[each.place] for each in path if not term.variables or each.name in term.variables]
        if isinstance(term, Pick):
            at = len(rows) - 1 - term.offset if term.last else term.offset
            return rows[at][self._below.names.index(term.column)] if 0 <= at < len(rows) else None
        if isinstance(term.call, UserCall):
            return fold_user(term.call, self._below, rows)
        if term.call.column is None:
            return len(rows)
        return fold(term.call.function, [row[self._below.names.index(term.call.column)] for row in rows])


def _after(path: Path, begin: int) -> int:
    """The row after the last one of a path."""
    return path[-1].place + 1 if path else begin


def _condition(condition: Expression | None, below: Schema) -> Callable[[dict[str, Any]], bool]:
    """Whether a condition is true of a row."""
    if condition is None:
        return lambda row: True
    value = evaluator(condition, below)
    return lambda row: value(row) is True
