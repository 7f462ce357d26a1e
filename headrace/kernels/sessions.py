"""Which session each row belongs to: one pass over rows in order of time, or over rows in any order."""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.kernels.compiling import kernel
from headrace.kernels.hashing import EMPTY

_I64 = nb.int64[::1]
_READ_I64 = nb.types.Array(nb.int64, 1, "A", readonly=True)


@kernel(
    nb.types.UniTuple(nb.int64, 2)(
        _READ_I64, _READ_I64, nb.int64, nb.int64, nb.int64, _I64, _I64, _I64, _I64, nb.int64[:, ::1], _I64
    ),
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
    ones; new ones follow as (group, start, last) in `fresh`. `marks` shows which were touched in this pass.
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


OLDER, NEWER, INTO = 0, 1, 2
_NONE = np.iinfo(np.int64).max
_LINKS = nb.int64[:, ::1]
_MASK = nb.boolean[::1]


@nb.njit(inline="always")
def _nearest(session: int, time: int, gap: int, links: Ints, start: Ints, last: Ints) -> int:
    """Search the list of a group from one session on: the session of `time`, else one next to it."""
    while time - last[session] > gap and links[session, NEWER] != EMPTY:
        session = links[session, NEWER]
    while start[session] - time > gap and links[session, OLDER] != EMPTY:
        session = links[session, OLDER]
    return session


@nb.njit(inline="always")
def _link(older: int, newer: int, links: Ints) -> None:
    """Make two sessions neighbours in the list of their group; either may be EMPTY."""
    if older != EMPTY:
        links[older, NEWER] = newer
    if newer != EMPTY:
        links[newer, OLDER] = older


@kernel(
    nb.types.UniTuple(nb.int64, 3)(
        _READ_I64,
        _READ_I64,
        nb.int64,
        nb.int64,
        nb.int64,
        nb.int64,
        _I64,
        _LINKS,
        _I64,
        _I64,
        _I64,
        _I64,
        _I64,
    ),
)
def gather_sessions(
    times: Ints,
    groups: Ints,
    gap: int,
    begin: int,
    next: int,
    voided: int,
    opened: Ints,
    links: Ints,
    group: Ints,
    start: Ints,
    last: Ints,
    sessions: Ints,
    gone: Ints,
) -> tuple[int, int, int]:
    """The session of each row from `begin` on, in any order; returns how far it got, `next` and `voided`.

    Stops before a row that needs a line if none is left. A session that was merged into another has that one
    in `links[·, INTO]`, and is listed in `gone`; `sessions` may still name it.
    """
    for i in range(begin, times.size):
        time, of = times[i], groups[i]
        session = opened[of]
        older, newer = EMPTY, EMPTY
        if session != EMPTY:
            session = _nearest(session, time, gap, links, start, last)
            if time - last[session] > gap:
                older, newer = session, links[session, NEWER]
                session = EMPTY
            elif start[session] - time > gap:
                older, newer = links[session, OLDER], session
                session = EMPTY
        if session == EMPTY:
            if next == start.size:
                return i, next, voided
            session = next
            next += 1
            group[session], start[session], last[session] = of, time, time
            links[session, OLDER], links[session, NEWER], links[session, INTO] = EMPTY, EMPTY, EMPTY
            _link(older, session, links)
            _link(session, newer, links)
        elif time > last[session]:
            last[session] = time
            other = links[session, NEWER]
            if other != EMPTY and start[other] - time <= gap:
                last[session] = last[other]
                _link(session, links[other, NEWER], links)
                links[other, INTO] = session
                gone[voided] = other
                voided += 1
        elif time < start[session]:
            start[session] = time
            other = links[session, OLDER]
            if other != EMPTY and time - last[other] <= gap:
                start[session] = start[other]
                _link(links[other, OLDER], session, links)
                links[other, INTO] = session
                gone[voided] = other
                voided += 1
        opened[of] = session
        sessions[i] = session
    return times.size, next, voided


@kernel(nb.int64(_I64, _LINKS, _I64, nb.int64, _I64))
def link_sessions(sessions: Ints, links: Ints, marks: Ints, stamp: int, touched: Ints) -> int:
    """Replace each session by the one it was merged into; lists each in `touched` once, returns how many."""
    seen = 0
    for i in range(sessions.size):
        session = sessions[i]
        while links[session, INTO] != EMPTY:
            session = links[session, INTO]
        sessions[i] = session
        if marks[session] != stamp:
            marks[session] = stamp
            touched[seen] = session
            seen += 1
    return seen


@kernel(nb.void(_READ_I64, _READ_I64, _I64, _LINKS))
def unlink(sessions: Ints, group: Ints, opened: Ints, links: Ints) -> None:
    """Remove sessions that are over from the lists of their groups."""
    for session in sessions:
        older, newer = links[session, OLDER], links[session, NEWER]
        _link(older, newer, links)
        if opened[group[session]] == session:
            opened[group[session]] = newer if newer != EMPTY else older


@kernel(
    nb.void(_READ_I64, _READ_I64, _READ_I64, nb.int64, nb.int64, _I64, _LINKS, _I64, _I64, _I64, _MASK),
)
def judge_rows(
    times: Ints,
    groups: Ints,
    order: Ints,
    gap: int,
    frontier: int,
    opened: Ints,
    links: Ints,
    start: Ints,
    last: Ints,
    least: Ints,
    late: npt.NDArray[np.bool_],
) -> None:
    """Which rows are too late; `order` is from the latest time to the earliest.

    A row is in time if its own session would end after the frontier, or if it is within the gap of an open
    session or of a row that is in time. A chain of rows after an open session ends later still, so only rows
    before one may need other rows to reach it, and those have been judged by then: `least` is the earliest
    row in time of each group, the greatest number if there is none.
    """
    for i in order:
        time, of = times[i], groups[i]
        if frontier - time < gap or (least[of] != _NONE and least[of] - time <= gap):
            late[i] = False
            least[of] = time
            continue
        late[i] = True
        session = opened[of]
        if session == EMPTY:
            continue
        session = _nearest(session, time, gap, links, start, last)
        if time - last[session] <= gap and start[session] - time <= gap:
            late[i] = False
            least[of] = time
