"""What is under way in each partition: the attempts to match, and how rows step them (`kernels.match`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.arrays import Codes, Ids, Ints, Lines, Mask, Times
from headrace.kernels import match as kernel
from headrace.kernels.match import FIELDS, NONE, PATH, WIDTH
from headrace.operators.state.automaton import Automaton, automaton
from headrace.plan.nodes.match import After, Match
from headrace.state.code_table import CodeTable
from headrace.state.key_index import GroupIndex
from headrace.state.part import Cell, Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

SKIPS: Final = {
    After.PAST_LAST_ROW: kernel.PAST_LAST,
    After.TO_NEXT_ROW: kernel.TO_NEXT,
    After.TO_FIRST: kernel.TO_FIRST,
    After.TO_LAST: kernel.TO_LAST,
}


@dataclass(frozen=True)
class Rows:
    """Rows in order: their partitions and times, and as bits the variables whose conditions hold for them.

    The bit after those of the variables is for the gate, if there is one.
    """

    codes: Codes
    times: Times
    masks: Ints


@dataclass(frozen=True)
class Step:
    """What rows made: nodes as lines of parent, row and variable; matches as last node, time, partition."""

    nodes: Lines
    matches: Lines


@dataclass(frozen=True)
class Candidates:
    """Threads whose tests have to be answered: their rows, the last nodes of their paths, and variables."""

    rows: Ids
    paths: Ids
    variables: Ids


class Attempts:
    """Attempts by partition; `pending` of them have a match that is not certain yet."""

    def __init__(self, plan: Match, kept: int) -> None:
        self.automaton: Automaton = automaton(plan)
        self._within = MAX_TIME if plan.within is None else plan.within
        self._separate = int(plan.skip.after is After.TO_NEXT_ROW)
        self.index = GroupIndex(pa.schema([plan.input.schema.field(key) for key in plan.keys]))
        self._partitions = CodeTable(head=(np.int64, NONE), tail=(np.int64, NONE))
        self._lines = CodeTable(line=(np.int64, 0, FIELDS + WIDTH * len(self.automaton.first)))
        self._counts = Cell(used=0, pending=0, rows=0)
        self._settings = self._constant_settings(plan, kept)
        self._seen = np.zeros(self.automaton.size, np.int64)
        self._at = np.zeros(kernel.PROGRESS, np.int64)
        self._room = 256

    def _constant_settings(self, plan: Match, kept: int) -> Ints:
        """The settings of the kernel that stay."""
        bits = {variable.name: 1 << i for i, variable in enumerate(plan.variables)}
        found = np.zeros(kernel.SETTINGS, np.int64)
        found[kernel.WITHIN] = self._within
        found[kernel.AFTER_MATCH] = SKIPS[plan.skip.after]
        found[kernel.MARKS] = bits[plan.skip.variable] if plan.skip.variable else 0
        found[kernel.TESTS] = sum(bits[v.name] for v in plan.variables if v.test is not None)
        past = plan.skip.after is After.PAST_LAST_ROW
        found[kernel.ALIKE] = int(not found[kernel.TESTS] and (self.automaton.lapses[:, 0] == NONE).all())
        found[kernel.MERGES] = int(past and plan.within is None and found[kernel.ALIKE])
        found[kernel.GATE] = 0 if plan.gate is None else 1 << len(plan.variables)
        found[kernel.KEPT] = kept
        found[kernel.SKIPS] = int(plan.skips)
        found[kernel.FAN_OUT] = self.automaton.fan_out
        variables = self.automaton.variables[self.automaton.first]
        found[kernel.OPENING] = np.bitwise_or.reduce(1 << variables)
        return found

    def __len__(self) -> int:
        """Partitions and attempts that are held."""
        return len(self.index) + self.used

    @property
    def used(self) -> int:
        """Lines in use, or used before."""
        return int(self._counts["used"])

    @property
    def _all(self) -> Lines:
        return self._lines["line"]

    # ------------------------------------------------------------------------------------------- stepping

    def codes(self, keys: list[pa.Array], rows: int) -> Codes:
        """The partitions of some rows."""
        codes = self.index.codes(keys, rows)
        self._partitions.grow(len(self.index))
        return codes

    def candidates(self, rows: Rows) -> Candidates:
        """The threads to which rows of different partitions come."""
        found = np.empty((self._room, 3), np.int64)
        count = self._find(rows, found)
        if count > len(found):
            found = np.empty((count, 3), np.int64)
            self._find(rows, found)
        found = found[:count]
        return Candidates(found[:, 0], np.ascontiguousarray(found[:, 1]), found[:, 2])

    def _find(self, rows: Rows, found: Lines) -> int:
        a = self.automaton
        return int(
            kernel.candidates(
                rows.codes,
                rows.times,
                rows.masks,
                a.variables,
                a.unless,
                a.begins,
                a.targets,
                self._settings,
                self._partitions["head"],
                self._all,
                found,
            )
        )

    def advance(self, rows: Rows, answers: Mask, first_node: int) -> Step:
        """Take rows; `first_node` is the id of the next node."""
        opening = int(np.count_nonzero(rows.masks & self._settings[kernel.OPENING]))
        self._lines.grow(self.used + opening + 1)
        nodes: list[Lines] = []
        matches: list[Lines] = []
        at = self._at
        at[:] = 0
        at[kernel.USED], at[kernel.PENDING] = self.used, self._counts["pending"]
        at[kernel.STAMP] = self._seen.max(initial=0)
        self._settings[kernel.FIRST_ROW] = self._counts["rows"]
        while at[kernel.ROW] < len(rows.codes):
            self._settings[kernel.FIRST_NODE] = first_node + sum(map(len, nodes))
            self._run(rows, answers, nodes, matches)
        self._counts["rows"] += len(rows.codes)
        self._counts["used"], self._counts["pending"] = int(at[kernel.USED]), int(at[kernel.PENDING])
        return Step(_joined(nodes), _joined(matches))

    def _run(self, rows: Rows, answers: Mask, nodes: list[Lines], matches: list[Lines]) -> None:
        """Run the kernel until it has no room; what it made goes to the lists.

        An attempt gets room for more threads when it may need it.
        """
        at, a, begin = self._at, self.automaton, self._at[kernel.ROW]
        new = np.empty((max(self._room, len(rows.codes)), 3), np.int64)
        made = np.empty((self._room, 3), np.int64)
        touched = np.empty(8 * max(self._room, len(rows.codes)), np.int64)
        kernel.advance(
            rows.codes,
            rows.times,
            rows.masks,
            answers,
            a.variables,
            a.unless,
            a.lapses,
            a.begins,
            a.targets,
            self._settings,
            self._partitions["head"],
            self._partitions["tail"],
            self._all,
            new,
            touched,
            made,
            self._seen,
            np.empty(((self._all.shape[1] - FIELDS) // WIDTH, WIDTH), np.int64),
            at,
        )
        if at[kernel.WIDE]:
            self._lines.widen("line", FIELDS + WIDTH * 2 * int(at[kernel.WIDE]))
            at[kernel.WIDE] = 0
        elif at[kernel.ROW] == begin:
            self._room *= 4
        nodes.append(new[: at[kernel.NODES]])
        matches.append(made[: at[kernel.MADE]])
        self._touch(touched[: at[kernel.TOUCHED]])
        at[kernel.NODES] = at[kernel.MADE] = at[kernel.TOUCHED] = 0

    def _touch(self, slots: Ids) -> None:
        slots = np.unique(slots)
        self._lines.touch(slots)
        self._partitions.touch(np.unique(self._all[slots, kernel.CODE]))

    # -------------------------------------------------------------------------------------------- settling

    def pending(self) -> Ids:
        """The attempts that have a match which is not certain yet."""
        if not self._counts["pending"]:
            return np.empty(0, np.int64)
        alive = self._all[: self.used]
        return np.flatnonzero((alive[:, kernel.ALIVE] == 1) & (alive[:, kernel.FOUND] == 1))

    def earliest(self) -> int:
        """The earliest time of a match that is not certain yet."""
        return int(self._all[self.pending(), kernel.WHEN].min(initial=MAX_TIME))

    def due(self) -> int:
        """When WITHIN next makes a match certain; just before the end of time if it has no limit."""
        slots = self.pending()
        if not len(slots):
            return MAX_TIME
        if self._within == MAX_TIME:
            return MAX_TIME - 1
        decisive = slots if self._separate else self._partitions["head"][self._all[slots, kernel.CODE]]
        return int(self._all[decisive, kernel.TIME].min()) + self._within - 1

    def settle(self, frontier: int) -> Lines:
        """The matches that are certain because no row up to `frontier` is missing."""
        if self.due() > frontier:
            return np.empty((0, 3), np.int64)
        return self._close(np.unique(self._all[self.pending(), kernel.CODE]), self._over(frontier))

    def _over(self, frontier: int) -> int:
        """Attempts that began at this time or before can take no more rows."""
        if frontier == MAX_TIME:
            return MAX_TIME
        return -MAX_TIME if self._within == MAX_TIME else max(frontier - self._within + 1, -MAX_TIME)

    def _close(self, codes: Codes, latest: int) -> Lines:
        made = np.empty((int(self._counts["pending"]), 3), np.int64)
        touched = np.empty(4 * self.used + 8, np.int64)
        at = self._at
        at[:] = 0
        at[kernel.PENDING] = self._counts["pending"]
        heads, tails = self._partitions["head"], self._partitions["tail"]
        kernel.close(codes, latest, self._separate, heads, tails, self._all, touched, made, at)
        self._counts["pending"] = int(at[kernel.PENDING])
        self._touch(touched[: at[kernel.TOUCHED]])
        self._partitions.touch(codes)
        return made[: at[kernel.MADE]]

    def end(self, punctuation: Punctuation) -> Lines:
        """The matches of the partitions that a punctuation closes."""
        return self._close(self.index.matching(punctuation), MAX_TIME)

    # ----------------------------------------------------------------------------------------- forgetting

    def drop_expired(self, frontier: int) -> None:
        """Drop the attempts that can take no more rows."""
        made = self._close(np.flatnonzero(self._partitions["head"] != NONE), self._over(frontier))
        assert not len(made), "matches are settled before"

    def needed(self, parents: Ids) -> Mask:
        """Which nodes are on the path of an attempt."""
        flags = np.zeros(len(parents), np.bool_)
        kernel.reachable(parents, self._all[: self.used], flags)
        return flags

    def compact(self, nodes: Ints) -> None:
        """Drop lines and partitions that are not in use; `nodes` are the new ids of nodes."""
        lines = self._all
        self._rename(lines, nodes)
        alive = lines[:, kernel.ALIVE] == 1
        alive[self.used :] = False
        slots = np.cumsum(alive) - 1
        heads, tails = self._partitions["head"], self._partitions["tail"]
        there = heads != NONE
        codes = np.cumsum(there) - 1
        for links in (heads, tails, lines[:, kernel.NEXT]):
            links[:] = np.where(links == NONE, NONE, slots[links])
        lines[alive, kernel.CODE] = codes[lines[alive, kernel.CODE]]
        self._lines.keep(alive)
        self._partitions.keep(there)
        self.index.compact(there)
        self._counts["used"] = int(np.count_nonzero(alive))

    def _rename(self, lines: Lines, nodes: Ints) -> None:
        """Give the paths of all attempts the new ids of their nodes."""
        if not len(nodes):
            return
        paths = lines[:, FIELDS + PATH :: WIDTH]
        threads = np.arange(paths.shape[1]) < lines[:, kernel.COUNT, None]
        alive = lines[:, kernel.ALIVE] == 1
        those = threads & alive[:, None] & (paths != NONE)
        paths[those] = nodes[paths[those]]
        found = alive & (lines[:, kernel.FOUND] == 1) & (lines[:, kernel.NODE] != NONE)
        lines[found, kernel.NODE] = nodes[lines[found, kernel.NODE]]

    def parts(self) -> dict[str, Part]:
        return {
            "keys": self.index,
            "partitions": self._partitions,
            "attempts": self._lines,
            "counts": self._counts,
        }


def _joined(pieces: list[Lines]) -> Lines:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.empty((0, 3), np.int64)
