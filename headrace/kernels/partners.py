"""Follows until when each row of a join has a partner, and when it has none.

`marks` has one line per row held (`headrace.kernels.join` has the lines with its interval): until when the
partners known so far cover it, how many of them end then, whether it is known to have none now, and whether
it is in the answer. The partners of a row have all started, so together they cover it without a gap up to the
last end. Events of one instant count together: a row is said to be without a partner only when an event of a
later instant comes, or when the watermark has passed (`settle`).
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel
from headrace.kernels.join import END, NEXT

COVER, COPIES, ALONE, SHOWN, ARMED, SLOT = 0, 1, 2, 3, 4, 5
WIDTH = 6
"""Columns of `marks`. `ARMED` is the time of the timer that is set for the row, `SLOT` its place in a list of
rows whose partners are looked up again, or −1."""

Ints = npt.NDArray[np.int64]
_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]
_FOLLOW = nb.int64(
    _LINES, _LINES, _READ, _READ, _READ, _READ, nb.boolean[::1], _ROW, _LINES, _ROW, nb.boolean, _LINES
)


@kernel(nb.int64(_LINES, _LINES, nb.int64, nb.int64, nb.int64, nb.int64))
def _note(out: Ints, links: Ints, filled: int, row: int, time: int, sign: int) -> int:
    """Write (time, row, sign) if the sign is not 0, negated if the row is a withdrawal."""
    if sign == 0:
        return filled
    out[filled, 0] = time
    out[filled, 1] = row
    out[filled, 2] = sign * (1 - 2 * (links[row, NEXT] & 1))
    return filled + 1


@kernel(nb.int64(_LINES, _LINES, nb.int64, nb.int64, nb.int64, nb.boolean, _LINES))
def _covered(links: Ints, marks: Ints, filled: int, row: int, time: int, semi: bool, out: Ints) -> int:
    """A row that had no partner gets one: write how that changes the answer."""
    cover = marks[row, COVER]
    gap = marks[row, ALONE] == 0 and cover < time
    if semi:
        if gap and marks[row, SHOWN]:
            filled = _note(out, links, filled, row, cover, -1)
            marks[row, SHOWN] = 0
        if not marks[row, SHOWN]:
            filled = _note(out, links, filled, row, time, 1)
        marks[row, SHOWN] = 1
    else:
        if gap:
            filled = _note(out, links, filled, row, cover, 1)
            marks[row, SHOWN] = 1
        if marks[row, SHOWN]:
            filled = _note(out, links, filled, row, time, -1)
        marks[row, SHOWN] = 0
    marks[row, ALONE] = 0
    return filled


@kernel(nb.void(_LINES, nb.int64, nb.int64, nb.int64, nb.int64, _LINES))
def _look_up(marks: Ints, row: int, begin: int, stop: int, time: int, held: Ints) -> None:
    """Set the cover of a row at an instant from its partners: lines (end, start, sign), latest end first."""
    marks[row, COVER], marks[row, COPIES] = time, 0
    at = begin
    while at < stop and held[at, 0] > time:
        end, copies = held[at, 0], 0
        while at < stop and held[at, 0] == end:
            if held[at, 1] <= time:
                copies += held[at, 2]
            at += 1
        if copies > 0:
            marks[row, COVER], marks[row, COPIES] = end, copies
            return


@kernel(_FOLLOW)
def follow(
    links: Ints,
    marks: Ints,
    rows: Ints,
    times: Ints,
    ends: Ints,
    signs: Ints,
    deferred: npt.NDArray[np.bool_],
    begins: Ints,
    held: Ints,
    seen: Ints,
    semi: bool,
    out: Ints,
) -> int:
    """Apply partners that come (+1) and are withdrawn (−1), in order of time, comings first at an instant.

    Writes (time, row, sign) for each change of the answer, and returns how many. If the last partner of those
    that end last is withdrawn, the others must be looked up: without lists (`begins` is empty) this event and
    later ones of the row are marked in `deferred`, and the row gets a slot; with them, slot s has the lines
    `held[begins[s]:begins[s + 1]]`.
    """
    filled, slots = 0, 0
    lists = begins.size > 0
    for i in range(rows.size):
        row, time, end = rows[i], times[i], ends[i]
        slot = marks[row, SLOT]
        if slot >= 0:
            if not lists:
                deferred[i] = True
                continue
            if seen[slot] == time:
                continue
        if signs[i] > 0:
            if marks[row, ALONE] or marks[row, COVER] <= time:
                at_once = marks[row, COVER] == time and not semi
                if not at_once or marks[row, ALONE] or marks[row, SHOWN]:
                    filled = _covered(links, marks, filled, row, time, semi, out)
                marks[row, COVER], marks[row, COPIES] = end, 1
            elif end > marks[row, COVER]:
                marks[row, COVER], marks[row, COPIES] = end, 1
            elif end == marks[row, COVER]:
                marks[row, COPIES] += 1
        elif end == marks[row, COVER]:
            if marks[row, COPIES] > 1:
                marks[row, COPIES] -= 1
            elif lists:
                _look_up(marks, row, begins[slot], begins[slot + 1], time, held)
                seen[slot] = time
            else:
                marks[row, SLOT] = slots
                slots += 1
                deferred[i] = True
    return filled


@kernel(nb.types.UniTuple(nb.int64, 2)(_LINES, _LINES, _READ, nb.int64, nb.boolean, _LINES, _LINES))
def settle(
    links: Ints, marks: Ints, rows: Ints, frontier: int, semi: bool, out: Ints, timers: Ints
) -> tuple[int, int]:
    """All events up to `frontier` were applied: which of these rows have no partner now, or will have none?

    Writes (time, row, sign) for changes of the answer, and (time, row) for timers to set; returns how many.
    """
    filled, armed = 0, 0
    for i in range(rows.size):
        row = rows[i]
        cover = marks[row, COVER]
        if marks[row, ALONE] or cover >= links[row, END]:
            continue
        if cover <= frontier:
            marks[row, ALONE] = 1
            if semi and marks[row, SHOWN]:
                filled = _note(out, links, filled, row, cover, -1)
            elif not semi:
                filled = _note(out, links, filled, row, cover, 1)
            marks[row, SHOWN] = 0 if semi else 1
        elif cover < marks[row, ARMED]:
            marks[row, ARMED] = cover
            timers[armed, 0] = cover
            timers[armed, 1] = row
            armed += 1
    return filled, armed
