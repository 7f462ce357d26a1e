"""Every row is accounted for: processed, late, or rejected with a reason."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import ArrayLike

from headrace.arrays import Mask, Times
from headrace.errors import InputError
from headrace.flow.batch import Batch, Extent
from headrace.graph.gates import Gate
from headrace.state.columns import raw_values
from headrace.time.durations import readable
from headrace.time.punctuation import Late, Punctuate, Rejected
from headrace.time.sources import Cells
from headrace.time.timestamp import FARTHEST, MAX_TIME, MIN_TIME

_MANY = 1024


@dataclass(frozen=True)
class Rules:
    """What a stream's rows may do.

    `disordered`: they may come out of order. `enforce` is what happens to a row that breaks a promise:
    `refuse` the push, report the row as late (`strict`), or `admit` it to operators that have not answered
    for its time yet. `guard`: a row more than that many ticks ahead of the wall clock is rejected.
    `ticks_per_second` is only used to write the guard in messages; None: in ticks.
    """

    disordered: bool = False
    enforce: str = "refuse"
    guard: int = MAX_TIME
    ticks_per_second: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.enforce not in _ENFORCE:
            near = difflib.get_close_matches(self.enforce, _ENFORCE, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_ENFORCE)}"
            raise InputError("HR-I008", f"unknown enforcement {self.enforce!r}", hint=hint)
        if self.guard < 0:
            raise InputError(
                "HR-I008", f"a guard of {self.guard}", hint="ticks ahead of the clock, 0 or more"
            )


@dataclass
class Admission:
    """The checks in front of one stream, and the rows they set apart."""

    stream: str
    rules: Rules = field(default_factory=Rules)
    punctuate: Punctuate = field(default_factory=Punctuate)
    gates: list[Gate] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    heartbeat: int | Times = MIN_TIME
    rows_in: int = 0
    rows_late: int = 0
    rows_rejected: int = 0
    rows_shed: int = 0

    @property
    def together(self) -> bool:
        """Whether the rows of an instant are judged together: one may keep another from being late."""
        return self.rules.enforce == "admit" and any(gate.together for gate in self.gates)

    def announce(self, batch: Batch) -> None:
        """Tell the gates which rows are about to be judged; gates may be shared with other streams."""
        for gate in self.gates:
            gate.announce(batch)

    def judged(self) -> None:
        """All rows of the instant have been judged."""
        for gate in self.gates:
            gate.judged()

    @contextmanager
    def accounting(self, rows: int) -> Iterator[None]:
        """Count rows, unless the push is refused: then their rejections are undone too."""
        rejected = len(self.rejected)
        try:
            yield
        except InputError:
            self.rows_rejected -= sum(len(r) for r in self.rejected[rejected:])
            del self.rejected[rejected:]
            raise
        self.rows_in += rows

    def timed(
        self, data: pa.RecordBatch, times: ArrayLike | pa.Array | None, cells: Cells | None = None
    ) -> tuple[pa.RecordBatch, Times, Cells | None]:
        """The rows that have a time, their times and their cells; rows without a time are rejected."""
        if times is None:
            raise InputError(
                "HR-I001",
                "rows of an external stream bring their times",
                place=self.stream,
                hint="pass times=, one int64 per row",
            )
        if _are_ticks(times, data.num_rows):
            return data, times, cells
        ticks = self._one_per_row(times, data.num_rows)
        if ticks.null_count:
            self.reject(Rejected(self.stream, "HR-R001", "the row has no time", data.filter(ticks.is_null())))
            valid = ticks.is_valid()
            cells = None if cells is None else cells[valid.to_numpy(zero_copy_only=False)]
            data, ticks = data.filter(valid), ticks.drop_null()
        return data, ticks.to_numpy(zero_copy_only=False), cells

    def _one_per_row(self, times: ArrayLike | pa.Array, rows: int) -> pa.Array:
        """Times as an Arrow array of int64 ticks; Arrow timestamps count microseconds."""
        try:
            array = self._ticks(times)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError) as error:
            raise InputError(
                "HR-I007",
                f"cannot read the times as ticks: {error}",
                place=self.stream,
                hint="pass int64 integers, one per row, or an Arrow timestamp column (microseconds count)",
            ) from None
        if len(array) != rows:
            raise InputError(
                "HR-I006",
                f"{len(array)} times for {rows} rows",
                place=self.stream,
                hint="pass one time per row",
            )
        return array

    @staticmethod
    def _ticks(times: ArrayLike | pa.Array) -> pa.Array:
        """Times of any accepted type as int64 ticks; timestamps are truncated to microseconds."""
        if isinstance(times, pa.ChunkedArray):
            times = times.combine_chunks()
        if not isinstance(times, pa.Array):
            times = pa.array(times if isinstance(times, list) else np.asarray(times))
        if pt.is_timestamp(times.type):
            times = times.cast(pa.timestamp("us", times.type.tz), safe=False)
            return times.cast(pa.int64())
        if not (pt.is_integer(times.type) or pt.is_null(times.type)):
            raise TypeError(f"they are of type {times.type}")
        return times if times.type == pa.int64() else times.cast(pa.int64())

    def guarded(self, batch: Batch, now: int, reach: Extent) -> Batch:
        """The rows that are not too far in the future: one wrong clock must not advance the heartbeat.

        All times are within `reach`; usually that is enough, and no row is checked.
        """
        batch = self._within_the_domain(batch, reach)
        guard = self.rules.guard
        if guard == MAX_TIME or reach.high <= now + guard:
            return batch
        wild = batch.start > now + guard
        if not wild.any():
            return batch
        limit = readable(guard, self.rules.ticks_per_second)
        reason = f"the time is more than {limit} ahead of the clock, which is the guard"
        self.reject(Rejected(self.stream, "HR-R002", reason, batch.data.filter(pa.array(wild))))
        return batch.filter(~wild)

    def _within_the_domain(self, batch: Batch, reach: Extent) -> Batch:
        """Reject rows whose times are too far from 0 for a window to be added."""
        if reach.low > -FARTHEST and reach.high < FARTHEST:
            return batch
        outside = (batch.start <= -FARTHEST) | (batch.start >= FARTHEST)
        if not outside.any():
            return batch
        reason = "the time is outside of -2^62 ... 2^62: no window could be added to it"
        self.reject(Rejected(self.stream, "HR-R003", reason, batch.data.filter(pa.array(outside))))
        return batch.filter(~outside)

    def stamped(self, batch: Batch, column: str) -> Batch:
        """The rows whose time equals the value of their time column; operators may rely on that."""
        column_times = batch.data.column(column)
        said = raw_values(column_times).view(np.int64)
        if not column_times.null_count and _are_same(said, batch.start):
            return batch
        wrong = said != batch.start
        if column_times.null_count:
            wrong |= column_times.is_null().to_numpy(zero_copy_only=False)
        reason = f"the time is not what the column {column} says"
        self.reject(Rejected(self.stream, "HR-R004", reason, batch.data.filter(pa.array(wrong))))
        return batch.filter(~wrong)

    def enforced(self, batch: Batch, now: int, in_force: int | Times, reach: Extent) -> Batch:
        """The rows that may enter: they break no promise, made or in force, or are admitted anyway.

        `in_force` holds for all rows, or for each row.
        """
        self.heartbeat = self._binding(in_force)
        greatest = self.heartbeat if isinstance(self.heartbeat, int) else self.heartbeat.max(initial=MIN_TIME)
        if reach.low > greatest and not self.punctuate.closes:
            return batch
        broken = (batch.start <= self.heartbeat) | self.punctuate.closed_to(batch.start, batch.data)
        if not broken.any():
            return batch
        return _ENFORCE[self.rules.enforce](self, batch, broken, now)

    def _binding(self, in_force: int | Times) -> int | Times:
        """The heartbeat that rows must keep."""
        promised = self.punctuate.promised
        if self.rules.enforce == "refuse":
            return promised
        if isinstance(in_force, np.ndarray):
            return np.maximum(promised, in_force)
        return max(promised, in_force)

    def reject(self, rejected: Rejected) -> None:
        """Set rows, or raw text that never became rows, apart with a reason."""
        self.rejected.append(rejected)
        self.rows_rejected += len(rejected)

    def _refuse(self, batch: Batch, broken: Mask, now: int) -> Batch:
        """`refuse`: raise an error for the first row that breaks a promise."""
        first = int(batch.start[broken][0])
        promised = self.punctuate.promised
        what = f"{promised} was promised to be past"
        if first > promised:
            found = batch.filter(broken).slice(0, 1)
            what = f"it {self.punctuate.broken_by(found.start, found.data)[0]}"
        raise InputError(
            "HR-I004",
            f"a row has time {first}, but {what}",
            place=self.stream,
            hint="declare bounds for the stream: late rows are then kept apart",
        )

    def _strict(self, batch: Batch, broken: Mask, now: int) -> Batch:
        """`strict`: set all rows that break a promise apart as late."""
        none = np.zeros(int(np.count_nonzero(broken)), np.int64)
        self._set_apart(batch, broken, none, none.astype(np.bool_))
        return batch.filter(~broken)

    def _admit(self, batch: Batch, broken: Mask, now: int) -> Batch:
        """`admit`: let in each row that some operator can still use; report those that missed an answer."""
        closed = self.punctuate.closed_to(batch.start, batch.data)
        missed, alive = np.zeros(len(batch), np.int64), np.full(len(batch), not self.gates)
        for gate in self.gates:
            here, left = gate.missed(batch, now)
            missed, alive = missed + here, alive | left
        alive |= missed == 0
        alive &= ~closed
        for gate in self.gates:
            gate.settle(alive)
        late = closed | (broken & (missed > 0))
        if late.any():
            self._set_apart(batch, late, missed[late], alive[late])
        return batch.filter(alive)

    def _set_apart(self, batch: Batch, late: Mask, missed: Times, admitted: Mask) -> None:
        """Report rows as late; those `admitted` go in anyway and are not counted as late."""
        heartbeat = self.heartbeat if isinstance(self.heartbeat, int) else self.heartbeat[late]
        rows = batch.filter(late)
        reasons = self.punctuate.broken_by(rows.start, rows.data) if self.punctuate.closes else ()
        self.late.append(Late(self.stream, rows.data, rows.start, heartbeat, missed, admitted, reasons))
        self.rows_late += int(np.count_nonzero(~admitted))


def _are_ticks(times: object, rows: int) -> TypeGuard[Times]:
    """Whether these are int64 ticks already, one per row: the common case, at no cost."""
    return isinstance(times, np.ndarray) and times.dtype == np.int64 and times.shape == (rows,)


def _are_same(one: Times, other: Times) -> bool:
    """Whether two columns are equal; long ones that share memory are not compared."""
    if len(one) < _MANY or one.strides != other.strides:
        return bool((one == other).all())
    one_at, other_at = (each.__array_interface__["data"][0] for each in (one, other))
    return bool(one_at == other_at or (one == other).all())


_ENFORCE: dict[str, Callable[[Admission, Batch, Mask, int], Batch]] = {
    "refuse": Admission._refuse,
    "strict": Admission._strict,
    "admit": Admission._admit,
}
