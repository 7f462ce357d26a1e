"""Counts and sums by instant: running sums of the rows that enter minus the rows that leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.instants.protocol import InstantValue, Leaving, Steps
from headrace.aggregates.limbs import Digits, Limbs, Sums, digits_of, whole_limbs
from headrace.aggregates.specs import Nulls, Real, Rows, Spec, Whole
from headrace.arrays import Ints, Mask
from headrace.kernels.aggregate_instants import run_ints
from headrace.kernels.exact_sums import run_digits
from headrace.state.code_table import CodeTable
from headrace.state.part import Part


class Tabled(InstantValue):
    """A value held in a table by group."""

    def __init__(self, spec: Spec, **columns: tuple[Any, Any] | tuple[Any, Any, int]) -> None:
        super().__init__(spec)
        self.table = CodeTable(**columns)

    def remap(self, new: Ints, keep: Mask) -> None:
        self.table.grow(len(keep))
        self.table.keep(keep)

    def put_away(self, codes: Ints, groups: int) -> dict[str, pa.Array]:
        self.table.grow(groups)
        return {name: pa.array(self.table[name][codes]) for name in self.table.names}

    def take_back(self, codes: Ints, groups: int, columns: Mapping[str, pa.Array]) -> None:
        self.table.grow(groups)
        for name in self.table.names:
            self.table[name][codes] = columns[name].to_numpy()
        self.table.touch(codes)

    def state(self) -> dict[str, Part]:
        return {"table": self.table}


class IntTotals(Tabled):
    """Running integer sums: exact, modulo 2^64."""

    def __init__(self, spec: Spec, limbs: int = 1) -> None:
        super().__init__(spec, **{f"limb{i}": (np.int64, 0) for i in range(limbs)})
        self._limbs = [f"limb{i}" for i in range(limbs)]

    def total(self, name: str, steps: Steps, at: Ints, deltas: Ints) -> Ints:
        """The running sum at each position; the table keeps the last one."""
        out = np.empty(steps.positions, np.int64)
        run_ints(steps.first, self.table[name][steps.codes], at, deltas, out)
        self.table[name][steps.codes] = out[steps.last]
        return out


class RowTotals(IntTotals):
    """How many rows are valid."""

    def __init__(self, spec: Rows) -> None:
        super().__init__(spec)

    def run(self, steps: Steps, groups: int) -> Ints:
        self.table.grow(groups)
        self.table.touch(steps.codes)
        return self.total(self._limbs[0], steps, steps.at, steps.sign())

    def counts(self, groups: int) -> Ints:
        """The number of rows of every group, now."""
        self.table.grow(groups)
        return np.asarray(self.table[self._limbs[0]], np.int64)


class NullTotals(IntTotals):
    """How many valid rows are null; the number 0 if no group in this run has any."""

    def __init__(self, spec: Nulls) -> None:
        super().__init__(spec)
        self._column = spec.column

    def run(self, steps: Steps, groups: int) -> Ints | int:
        self.table.grow(groups)
        if not steps.has_nulls and not self.table[self._limbs[0]][steps.codes].any():
            return 0
        self.table.touch(steps.codes)
        null = np.flatnonzero(steps.is_null(self._column))
        return self.total(self._limbs[0], steps, *steps.deltas(self.spec, 0, null, steps.sign()[null]))


class WholeTotals(IntTotals):
    """Exact sums of whole numbers and decimals."""

    def __init__(self, spec: Whole) -> None:
        super().__init__(spec, spec.limbs)
        self._column, self._count = spec.column, spec.limbs

    def run(self, steps: Steps, groups: int) -> tuple[Ints, ...]:
        self.table.grow(groups)
        self.table.touch(steps.codes)
        known = steps.known(self._column)
        limbs = whole_limbs(steps.values(self._column, known), self._count)
        signs = steps.sign()[known]
        changes = (steps.deltas(self.spec, i, known, signs * limb) for i, limb in enumerate(limbs))
        return tuple(self.total(n, steps, *each) for n, each in zip(self._limbs, changes, strict=True))


class RealTotals(Tabled):
    """Exact sums of powers of numbers of any size: removing a number leaves no rounding error."""

    def __init__(self, spec: Real) -> None:
        self._limbs = Limbs(spec.power)
        super().__init__(spec, limbs=(np.int64, 0, len(self._limbs)))
        self._column = spec.column

    def run(self, steps: Steps, groups: int) -> Sums:
        self.table.grow(groups)
        self.table.touch(steps.codes)
        known = steps.known(self._column)
        numbers = digits_of(steps.values(self._column, known), self._limbs.power)
        self._limbs.cover(numbers)
        events = (steps.at[known], steps.sign()[known], numbers.bases, numbers.digits)
        if steps.leaving is not None:
            assert not isinstance(known, slice)
            events = self._with_leaving(steps, steps.leaving, known, numbers)
        lines = self.table.widened("limbs", len(self._limbs))
        sums = lines[steps.codes]
        out = np.empty((steps.positions, len(self._limbs)), np.int64)
        run_digits(steps.first, sums, *events, self._limbs.column, out)
        lines[steps.codes] = sums
        return Sums(out, self._limbs.ids)

    def _with_leaving(
        self, steps: Steps, leaving: Leaving, known: Ints, numbers: Digits
    ) -> tuple[Ints, Ints, Ints, Ints]:
        """Positions, signs, places and digits of the numbers that come and of the sums that leave."""
        places = leaving.pieces[self.spec]
        self._limbs.have(np.array(sorted(places), np.int64))
        at, signs = [known], [steps.sign()[known]]
        bases, digits = [numbers.bases], [numbers.digits]
        for place, sums in places.items():
            some = np.flatnonzero(sums)
            single = np.zeros((len(some), numbers.digits.shape[1]), np.int64)
            single[:, 0] = sums[some]
            at.append(leaving.events[some])
            signs.append(np.full(len(some), -1, np.int64))
            bases.append(np.full(len(some), place, np.int64))
            digits.append(single)
        order = np.argsort(np.concatenate(at), kind="stable")
        positions = steps.at[np.concatenate(at)[order]]
        return (
            positions,
            np.concatenate(signs)[order],
            np.concatenate(bases)[order],
            np.concatenate(digits)[order],
        )

    def remap(self, new: Ints, keep: Mask) -> None:
        super().remap(new, keep)
        kept = self._limbs.keep(self.table["limbs"].any(axis=0))
        if kept is not None:
            self.table.narrow("limbs", kept)

    def put_away(self, codes: Ints, groups: int) -> dict[str, pa.Array]:
        """A list per group: the places of its sum, and the limb at each."""
        self.table.grow(groups)
        lines = self.table["limbs"][codes]
        at, column = np.nonzero(lines)
        offsets = pa.array(np.searchsorted(at, np.arange(len(codes) + 1)))
        values = {"ids": self._limbs.ids[column], "limbs": lines[at, column]}
        return {n: pa.LargeListArray.from_arrays(offsets, pa.array(v)) for n, v in values.items()}

    def take_back(self, codes: Ints, groups: int, columns: Mapping[str, pa.Array]) -> None:
        self.table.grow(groups)
        ids = columns["ids"].flatten().to_numpy()
        self._limbs.have(np.unique(ids))
        lines = self.table.widened("limbs", len(self._limbs))
        at = np.repeat(codes, columns["ids"].value_lengths().to_numpy())
        lines[codes] = 0
        lines[at, self._limbs.column[ids]] = columns["limbs"].flatten().to_numpy()
        self.table.touch(codes)

    def state(self) -> dict[str, Part]:
        return {**super().state(), "limbs": self._limbs}
