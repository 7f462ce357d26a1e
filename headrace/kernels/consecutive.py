"""Rows that follow each other directly: an automaton per partition, stepped once a row."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.compiling import kernel

Ids = npt.NDArray[np.int64]
Lines = npt.NDArray[np.int64]

_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]
_SIGNATURE = nb.int64(_READ, _READ, _READ, _READ, nb.int64, _LINES, _ROW, _LINES)


@kernel(_SIGNATURE)
def in_total_order(
    steps: Ids, codes: Ids, times: Ids, ids: Ids, count: int, state: Lines, last: Ids, before: Lines
) -> int:
    """Rows one after the other; `state[code]` is how many steps are met, then the row of each.

    `steps` are −1 for rows that only stand between. For each match the id of its last row goes to `last`,
    those of the others to `before`; returns how many there are.
    """
    found = 0
    for i in range(steps.size):
        code, step = codes[i], steps[i]
        if step == 0:
            state[code, 0], state[code, 1] = 1, ids[i]
        elif step < 0 or state[code, 0] != step:
            state[code, 0] = 0
        elif step == count - 1:
            last[found] = ids[i]
            before[found, :] = state[code, 1:]
            found += 1
            state[code, 0] = 0
        else:
            state[code, 0], state[code, 1 + step] = step + 1, ids[i]
    return found


@kernel(_SIGNATURE)
def by_instants(
    steps: Ids, codes: Ids, times: Ids, ids: Ids, count: int, state: Lines, last: Ids, before: Lines
) -> int:
    """The same where simultaneous rows of different steps are in no order.

    `state[code]` is the newest instant of the partition, then for that instant and for the one before it a
    block of lines, one for each step but the last: whether a match so far ends there, and the row of each of
    its steps; in the newest also, for each step, whether a row of it came.
    """
    kept = count - 1
    block = kept * (1 + kept)
    now, was, came = 1, 1 + block, 1 + 2 * block
    found = 0
    for i in range(steps.size):
        code, step = codes[i], steps[i]
        line = state[code]
        if times[i] > line[0]:
            line[0] = times[i]
            line[was : was + block] = line[now : now + block]
            line[now : now + block] = 0
            line[came : came + count] = 0
        if step < 0:
            continue
        first = line[came + step] == 0
        line[came + step] = 1
        previous = was + (step - 1) * (1 + kept)
        goes_on = step == 0 or (first and line[previous] == 1)
        if step == kept:
            if goes_on:
                last[found] = ids[i]
                before[found, :] = line[previous + 1 : previous + 1 + kept]
                found += 1
            continue
        own = now + step * (1 + kept)
        line[own] = 1 if goes_on else 0
        if goes_on:
            if step > 0:
                line[own + 1 : own + 1 + step] = line[previous + 1 : previous + 1 + step]
            line[own + 1 + step] = ids[i]
    return found
