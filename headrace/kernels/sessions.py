"""Which session each row belongs to: one pass over rows in order of time."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.kernels.hashing import EMPTY

Ints = npt.NDArray[np.int64]
_I64 = nb.int64[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@nb.njit(
    nb.types.UniTuple(nb.int64, 2)(
        _READ_I64, _READ_I64, nb.int64, nb.int64, nb.int64, _I64, _I64, _I64, _I64, nb.int64[:, ::1], _I64
    ),
    cache=True,
)
def assign_sessions(
    times: Ints,
    groups: Ints,
    gap: int,
    known: int,
    stamp: int,
    opened: Ints,
    last: Ints,
    marks: Ints,
    sessions: Ints,
    fresh: Ints,
    touched: Ints,
) -> tuple[int, int]:
    """The session of each row; returns how many are new and how many were touched.

    `opened` is the latest session of each group, `last` the time of the latest row of each of the `known`
    ones; new ones follow as (group, start, last) in `fresh`. `marks` tells which were touched in this pass.
    """
    added, seen = 0, 0
    for i in range(times.size):
        group, time = groups[i], times[i]
        session = opened[group]
        latest = time
        if session != EMPTY:
            latest = last[session] if session < known else fresh[session - known, 2]
        if session == EMPTY or time - latest > gap:
            session = known + added
            opened[group] = session
            fresh[added, 0] = group
            fresh[added, 1] = time
            fresh[added, 2] = time
            added += 1
            touched[seen] = session
            seen += 1
        elif session < known:
            last[session] = time
            if marks[session] != stamp:
                marks[session] = stamp
                touched[seen] = session
                seen += 1
        else:
            fresh[session - known, 2] = time
        sessions[i] = session
    return added, seen
