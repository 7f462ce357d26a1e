"""Every row is accounted for: processed, late, or rejected with a reason (`design.md` §2)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import ArrayLike

from headrace.errors import InputError
from headrace.flow.batch import Batch
from headrace.operators.expand import windows_of
from headrace.operators.order import OrderOperator
from headrace.plan.windows import Sliding
from headrace.time.punctuate import Late, Punctuate, Rejected
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rules:
    """What a stream's rows may do.

    `disordered`: they may come out of order. `enforce` says what becomes of a row that breaks a promise:
    `refuse` the push, set it apart as late (`strict`), or `admit` it wherever no operator has answered for
    its time. `guard`: a row more than that many ticks ahead of the wall clock is rejected.
    """

    disordered: bool = False
    enforce: str = "refuse"
    guard: int = MAX_TIME

    def __post_init__(self) -> None:
        if self.enforce not in _ENFORCE:
            near = difflib.get_close_matches(self.enforce, _ENFORCE, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(_ENFORCE)}"
            raise InputError("HR-I008", f"unknown enforcement {self.enforce!r}", hint=hint)


@dataclass(frozen=True)
class Gate:
    """Where rows of a stream are put in order: what it has answered for, rows come too late for.

    With a `window`, a row counts once for each window that holds it, each answered at its own tick.
    """

    order: OrderOperator
    window: Sliding | None
    in_force: Callable[[int], int]

    def missed(self, times: Times, now: int) -> tuple[Times, Mask]:
        """How many answers each row is too late for, and whether one is left that it is in time for.

        An answer counts as given once the heartbeats prove it could be, given yet or not: which rows are
        late depends on arrivals alone.
        """
        frontier = max(self.order.frontier, self.in_force(now))
        if self.window is None:
            late = times <= frontier
            return late.astype(np.int64), ~late
        first, copies = windows_of(times, self.window)
        answered = (frontier + 1) // self.window.slide
        missed = np.clip(answered - first + 1, 0, copies)
        return missed, missed < copies


@dataclass
class Admission:
    """The checks in front of one stream, and the rows they set apart."""

    stream: str
    rules: Rules = field(default_factory=Rules)
    punctuate: Punctuate = field(default_factory=Punctuate)
    gates: list[Gate] = field(default_factory=list)
    late: list[Late] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    heartbeat: int = MIN_TIME
    rows_in: int = 0
    rows_late: int = 0
    rows_rejected: int = 0

    @contextmanager
    def accounting(self, rows: int) -> Iterator[None]:
        """Count rows in, unless they are refused: then nothing of them was set apart either."""
        rejected = len(self.rejected)
        try:
            yield
        except InputError:
            self.rows_rejected -= sum(len(r) for r in self.rejected[rejected:])
            del self.rejected[rejected:]
            raise
        self.rows_in += rows

    def timed(self, data: pa.RecordBatch, times: ArrayLike | pa.Array | None) -> tuple[pa.RecordBatch, Times]:
        """The rows that have a time, and the times; the others are rejected."""
        if times is None:
            raise InputError(
                "HR-I001",
                "rows of an external stream bring their times",
                place=self.stream,
                hint="pass times=, one int64 per row",
            )
        if len(times) != data.num_rows:  # type: ignore[arg-type]
            raise InputError(
                "HR-I006",
                f"{len(times)} times for {data.num_rows} rows",  # type: ignore[arg-type]
                place=self.stream,
                hint="pass one time per row",
            )
        if isinstance(times, (pa.Array, pa.ChunkedArray)) and times.null_count:
            there = times.is_valid()
            self.reject(Rejected(self.stream, "HR-R001", "the row has no time", data.filter(times.is_null())))
            data, times = data.filter(there), times.drop_null()
        return data, self._ticks(times)

    def _ticks(self, times: ArrayLike | pa.Array) -> Times:
        """Times as int64 ticks: integers, or Arrow timestamps as they count."""
        if isinstance(times, (pa.Array, pa.ChunkedArray)) and pt.is_timestamp(times.type):
            times = times.cast(pa.int64())
        values = np.asarray(times)
        if len(values) and values.dtype.kind not in "iu":
            raise InputError(
                "HR-I007",
                f"times of type {values.dtype} are no ticks",
                place=self.stream,
                hint="pass integers, or an Arrow timestamp column",
            )
        return np.ascontiguousarray(values, np.int64)

    def guarded(self, batch: Batch, now: int) -> Batch:
        """The rows that are not too far in the future: one clock gone wild must not poison a heartbeat."""
        guard = self.rules.guard
        if guard == MAX_TIME or not len(batch):
            return batch
        wild = batch.start > now + guard
        if not wild.any():
            return batch
        ahead = int(batch.start[wild].max()) - now
        reason = f"the time is up to {ahead} ticks ahead of the clock; the guard allows {guard}"
        self.reject(Rejected(self.stream, "HR-R002", reason, batch.data.filter(pa.array(wild))))
        return batch.filter(~wild)

    def enforced(self, batch: Batch, now: int, in_force: int) -> Batch:
        """The rows that break no promise, made or in force, or may come in all the same."""
        if self.rules.enforce != "refuse":
            self.heartbeat = max(self.punctuate.promised, in_force)
        else:
            self.heartbeat = self.punctuate.promised
        broken = (batch.start <= self.heartbeat) | self.punctuate.closed_to(batch.start, batch.data)
        if not broken.any():
            return batch
        return _ENFORCE[self.rules.enforce](self, batch, broken, now)

    def reject(self, rejected: Rejected) -> None:
        """Set rows, or raw text that never became rows, apart with a reason."""
        self.rejected.append(rejected)
        self.rows_rejected += len(rejected)

    def _refuse(self, batch: Batch, broken: Mask, now: int) -> Batch:
        first = int(batch.start[broken][0])
        raise InputError(
            "HR-I004",
            f"a row has time {first}, but {self.punctuate.promised} was promised to be past",
            place=self.stream,
            hint="declare bounds for the stream: late rows are then kept apart",
        )

    def _strict(self, batch: Batch, broken: Mask, now: int) -> Batch:
        none = np.zeros(int(np.count_nonzero(broken)), np.int64)
        self._set_apart(batch.filter(broken), none, none.astype(np.bool_))
        return batch.filter(~broken)

    def _admit(self, batch: Batch, broken: Mask, now: int) -> Batch:
        closed = self.punctuate.closed_to(batch.start, batch.data)
        missed, alive = np.zeros(len(batch), np.int64), np.full(len(batch), not self.gates)
        for gate in self.gates:
            here, left = gate.missed(batch.start, now)
            missed, alive = missed + here, alive | left
        alive |= missed == 0
        alive &= ~closed
        late = closed | (broken & (missed > 0))
        if late.any():
            self._set_apart(batch.filter(late), missed[late], alive[late])
        return batch.filter(alive)

    def _set_apart(self, batch: Batch, missed: Times, admitted: Mask) -> None:
        self.late.append(Late(self.stream, batch.data, batch.start, self.heartbeat, missed, admitted))
        self.rows_late += int(np.count_nonzero(~admitted))


_ENFORCE: dict[str, Callable[[Admission, Batch, Mask, int], Batch]] = {
    "refuse": Admission._refuse,
    "strict": Admission._strict,
    "admit": Admission._admit,
}
