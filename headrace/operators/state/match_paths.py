"""The paths of partial matches: which rows they have taken, and the values over these rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.aggregates.runs import fold_runs
from headrace.arrays import Ids, Ints, Lines, Mask
from headrace.kernels.match import NONE, trace
from headrace.plan.nodes.match import Fold, Match, Pick, Term
from headrace.state.code_table import CodeTable
from headrace.state.part import Part
from headrace.state.rows import RowStore, bare_rows


@dataclass(frozen=True)
class Taken:
    """The rows of some variables in several paths: the path and the id of each, in order."""

    owners: Ids
    rows: Ids


class Paths:
    """A tree of nodes, each a row that became a row of a variable; a path goes from a node up to its root.

    The rows have the columns that measures and tests read.
    """

    def __init__(self, plan: Match) -> None:
        below = plan.input.schema
        names = dict.fromkeys(column for term in plan.terms for column in term.columns)
        self._numbers = {variable.name: i for i, variable in enumerate(plan.variables)}
        self.rows = RowStore(pa.schema([below.field(name) for name in names]))
        self.nodes = CodeTable(parent=(np.int64, NONE), row=(np.int64, 0), variable=(np.int64, 0))
        self.kept = self._bits(plan.terms)

    def _bits(self, terms: Sequence[Term]) -> int:
        """The variables whose rows are read, as bits."""
        every = set(self._numbers)
        read = set[str]().union(*(term.variables or every for term in terms))
        return sum(1 << self._numbers[name] for name in read)

    def __len__(self) -> int:
        """Nodes and rows that are held."""
        return len(self.nodes) + len(self.rows)

    def keep_rows(self, data: pa.RecordBatch) -> int:
        """Store rows; returns the id of the first."""
        names = self.rows.schema.names
        return self.rows.append(data.select(names) if names else bare_rows(data.num_rows))

    def add(self, nodes: Lines, rows: Ids) -> None:
        """Add nodes, lines of parent, row and variable; `rows` are the ids of their rows."""
        first = len(self.nodes)
        self.nodes.grow(first + len(nodes))
        self.nodes["parent"][first:] = nodes[:, 0]
        self.nodes["row"][first:] = rows
        self.nodes["variable"][first:] = nodes[:, 2]
        self.nodes.touch(np.arange(first, first + len(nodes)))

    # --------------------------------------------------------------------------------------------- values

    def values(self, terms: Sequence[Term], last: Ids, more: tuple[Ids, int] | None = None) -> list[pa.Array]:
        """Each term over the paths that end at some nodes; `more` is another row for each, of a variable."""
        owners, rows, variables = self._taken(last, more)
        by_variables: dict[tuple[str, ...], Taken] = {}
        for names in {term.variables for term in terms}:
            numbers = [self._numbers[name] for name in names]
            those = np.isin(variables, numbers) if names else slice(None)
            by_variables[names] = Taken(owners[those], rows[those])
        found: dict[str, pa.Array] = {}
        for names, taken in by_variables.items():
            folds = [t for t in terms if isinstance(t, Fold) and t.variables == names]
            if folds:
                data = self.rows.rows(taken.rows)
                columns = fold_runs([fold.call for fold in folds], data, taken.owners, len(last))
                found |= {fold.name: column for fold, column in zip(folds, columns, strict=True)}
        for term in terms:
            if isinstance(term, Pick):
                found[term.name] = self._pick(term, by_variables[term.variables], len(last))
        return [found[term.name] for term in terms]

    def _taken(self, last: Ids, more: tuple[Ids, int] | None) -> tuple[Ids, Ids, Ids]:
        """The rows of some paths: their paths, their ids and their variables."""
        begins, path = np.empty(len(last) + 1, np.int64), np.empty(4 * len(last) + 64, np.int64)
        parents = self.nodes["parent"]
        length = trace(parents, last, begins, path)
        if length > len(path):
            path = np.empty(length, np.int64)
            trace(parents, last, begins, path)
        path = path[:length]
        owners = np.repeat(np.arange(len(last)), np.diff(begins))
        rows, variables = self.nodes["row"][path], self.nodes["variable"][path]
        if more is None:
            return owners, rows, variables
        ends = begins[1:]
        return (
            np.insert(owners, ends, np.arange(len(last))),
            np.insert(rows, ends, more[0]),
            np.insert(variables, ends, more[1]),
        )

    def _pick(self, pick: Pick, taken: Taken, count: int) -> pa.Array:
        """A column of one row of each path; null if there is no such row."""
        paths = np.arange(count)
        begins = np.searchsorted(taken.owners, paths, "left")
        ends = np.searchsorted(taken.owners, paths, "right")
        at = ends - 1 - pick.offset if pick.last else begins + pick.offset
        there = (begins <= at) & (at < ends)
        column = self.rows.schema.get_field_index(pick.column)
        if not there.any():
            return pa.nulls(count, self.rows.schema.field(column).type)
        some = taken.rows[at[np.argmax(there)]]
        ids = np.full(count, some)
        ids[there] = taken.rows[at[there]]
        values = self.rows.columns[column].take(ids - self.rows.base)
        if there.all():
            return values
        return pc.if_else(pa.array(there), values, pa.scalar(None, values.type))

    # ----------------------------------------------------------------------------------------- forgetting

    def compact(self, needed: Mask) -> Ints:
        """Keep only some nodes and their rows; returns the new id of each node."""
        rows = self.nodes["row"][needed]
        keep = np.zeros(len(self.rows), np.bool_)
        keep[rows - self.rows.base] = True
        self.rows.compact(keep)
        self.nodes.keep(needed)
        places: Ints = np.cumsum(needed) - 1
        parents = self.nodes["parent"]
        parents[:] = np.where(parents == NONE, NONE, places[parents])
        if len(keep):
            self.nodes["row"][:] = (np.cumsum(keep) - 1)[rows]
        return places

    def parts(self) -> dict[str, Part]:
        return {"rows": self.rows, "nodes": self.nodes}
