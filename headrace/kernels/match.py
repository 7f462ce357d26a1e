"""Steps the automata of MATCH_RECOGNIZE: one row after the other, each in its partition.

An *attempt* is what is left of all ways to match from one row. It is a line of `attempts`: the fields below,
then its *threads*, four words each: the state, the newest node of the path, the row to skip to, and the time
from which a lapse is counted. Threads are in order of preference. A *node* of a path is a row that a thread
took: its parent, its row and its variable. Nodes are never changed, so threads share what they have in
common.

The attempts of a partition are chained in order of their first rows. If the next match begins where the last
one ends, the result of an attempt counts only once all attempts before it are settled.

Numba, because what a row may be depends on the rows before it.
"""

from __future__ import annotations

import numba as nb

from headrace.arrays import Ids, Lines, Mask
from headrace.kernels.compiling import kernel

NEXT, CODE, START, TIME, COUNT, FOUND, NODE, WHEN, AFTER, ALIVE, FIELDS = range(11)
"""Of an attempt: the next one of its partition, its partition, the number and time of its first row, how many
threads it has, whether it has a match so far, that match's last node, its time and the number of the row at
which the search goes on after it, and whether the line is in use."""
STATE, PATH, MARK, SINCE, WIDTH = range(5)
"""Of a thread: its state, the last node of its path, the number of the row that SKIP names, and the time from
which the lapse of a row is counted."""
ROW, USED, NODES, TOUCHED, MADE, STAMP, PENDING, CURSOR, WIDE, PROGRESS = range(10)
"""Of the counters: the next row, attempts in use, new nodes, changed attempts, new matches, the newest stamp,
attempts that have a match, answers of tests used, and how many threads an attempt may get to have."""
WITHIN, AFTER_MATCH, MARKS, MERGES, TESTS, KEPT, FIRST_ROW, FIRST_NODE = range(8)
OPENING, FAN_OUT, SKIPS, GATE, ALIKE, SETTINGS = range(8, 14)
"""Of the settings: WITHIN, the kind of SKIP, the variables that it names, whether equal states of different
attempts are merged, the variables with tests, those whose rows are kept, the number of the first row, the id
of the first new node, the variables that can begin a match, the most states that come after one, whether
rows may be in between, the bit that a row needs to begin a match, and whether threads in one state have the
same future. Sets of variables are bits."""
PAST_LAST, TO_NEXT, TO_FIRST, TO_LAST = range(4)
LAPSE, COUNTS = range(2)
"""Of `lapses`, by state: how many ticks the row comes after the one from which time is counted, or NONE; and
whether time is counted from this row on."""
NONE = -1
NEVER = -(2**63)
"""The time from which a lapse is counted before there is a row."""


@nb.njit(inline="always")
def _emit(line: Ids, made: Lines, at: Ids) -> None:
    """Report the match of an attempt."""
    made[at[MADE], 0] = line[NODE]
    made[at[MADE], 1] = line[WHEN]
    made[at[MADE], 2] = line[CODE]
    at[MADE] += 1


@nb.njit(inline="always")
def _remove(slot: int, attempts: Lines, touched: Ids, at: Ids) -> None:
    """An attempt is over."""
    if attempts[slot, FOUND] == 1:
        at[PENDING] -= 1
    attempts[slot, ALIVE] = 0
    touched[at[TOUCHED]] = slot
    at[TOUCHED] += 1


@kernel()
def _settle(
    code: int, separate: int, heads: Ids, tails: Ids, attempts: Lines, touched: Ids, made: Lines, at: Ids
) -> int:
    """Report the matches of a partition that are certain; returns where its search goes on after them.

    If attempts are `separate`, each one counts as soon as it has no threads left.
    """
    limit = NONE
    before, slot = NONE, heads[code]
    while slot != NONE:
        line = attempts[slot]
        after = line[NEXT]
        if line[START] < limit or line[COUNT] == 0:
            if line[START] >= limit and line[FOUND] == 1:
                _emit(line, made, at)
                if separate == 0:
                    limit = line[AFTER]
            _remove(slot, attempts, touched, at)
            if before == NONE:
                heads[code] = after
            else:
                attempts[before, NEXT] = after
                touched[at[TOUCHED]] = before
                at[TOUCHED] += 1
        elif separate == 0:
            break
        else:
            before = slot
        slot = after
    if heads[code] == NONE:
        tails[code] = NONE
    elif slot == NONE:
        tails[code] = before
    return limit


@nb.njit(inline="always")
def _fits(variable: int, mask: int, tests: int, answers: Mask, asked: int) -> bool:
    """Whether a row can be one of a variable: its condition holds, and its test, if it has one."""
    if (mask >> variable) & 1 == 0:
        return False
    return (tests >> variable) & 1 == 0 or answers[asked]


@nb.njit(inline="always")
def _opens(mask: int, settings: Ids) -> bool:
    """Whether a row can begin a match."""
    return bool(mask & settings[OPENING] != 0 and mask & settings[GATE] == settings[GATE])


@nb.njit(inline="always")
def _lapsed(lapse: int, since: int, time: int) -> bool:
    """Whether a row comes as long after another as its state says, if it says so."""
    return lapse == NONE or (since != NEVER and time - since == lapse)


@kernel()
def _step(
    line: Ids,
    row: int,
    time: int,
    mask: int,
    shared: int,
    opens: int,
    answers: Mask,
    variables: Ids,
    unless: Ids,
    lapses: Lines,
    begins: Ids,
    targets: Ids,
    settings: Ids,
    nodes: Lines,
    seen: Ids,
    scratch: Lines,
    at: Ids,
) -> None:
    """A row comes to an attempt: each thread takes it or dies. Threads behind one that accepts are cut off.

    If rows may be in between, a thread stays unless the row `opens` the attempt, and one that accepts is the
    end of all. If threads in one state have the same future, only the preferred one goes on.
    """
    tests, first, skips, alike = settings[TESTS], at[CURSOR], settings[SKIPS], settings[ALIKE]
    at[CURSOR] += (1 + skips) * line[COUNT]
    if shared == 0:
        at[STAMP] += 1
    stamp, alive, cut = at[STAMP], 0, 0
    number = settings[FIRST_ROW] + row
    for j in range(line[COUNT]):
        thread = FIELDS + WIDTH * j
        state = line[thread + STATE]
        variable = variables[state]
        asked = first + (1 + skips) * j
        if skips == 1 and unless[state] != NONE and _fits(unless[state], mask, tests, answers, asked + 1):
            continue
        since = line[thread + SINCE]
        fits = _fits(variable, mask, tests, answers, asked) and _lapsed(lapses[state, LAPSE], since, time)
        if not fits:
            late = lapses[state, LAPSE] != NONE and (since == NEVER or time - since > lapses[state, LAPSE])
            if skips == 1 and opens == 0 and not late and (alike == 0 or seen[state] != stamp):
                seen[state] = stamp
                scratch[alive, STATE], scratch[alive, SINCE] = state, since
                scratch[alive, PATH], scratch[alive, MARK] = line[thread + PATH], line[thread + MARK]
                alive += 1
            continue
        if lapses[state, COUNTS] == 1:
            since = time
        path, mark = line[thread + PATH], line[thread + MARK]
        if (settings[KEPT] >> variable) & 1 == 1:
            node = at[NODES]
            nodes[node, 0], nodes[node, 1], nodes[node, 2] = path, row, variable
            path = settings[FIRST_NODE] + node
            at[NODES] += 1
        if (settings[MARKS] >> variable) & 1 == 1 and (mark == NONE or settings[AFTER_MATCH] == TO_LAST):
            mark = number
        for k in range(begins[state], begins[state + 1]):
            target = targets[k]
            if target == NONE:
                if line[FOUND] == 0:
                    at[PENDING] += 1
                goes_on = number + 1
                if settings[AFTER_MATCH] >= TO_FIRST:
                    goes_on = max(mark, line[START] + 1)
                line[FOUND], line[NODE], line[WHEN], line[AFTER] = 1, path, time, goes_on
                cut = 1
                if skips == 1:
                    alive = 0
                break
            if alike == 1:
                if seen[target] == stamp:
                    continue
                seen[target] = stamp
            scratch[alive, STATE], scratch[alive, PATH], scratch[alive, MARK] = target, path, mark
            scratch[alive, SINCE] = since
            alive += 1
        if cut == 1:
            break
    line[COUNT] = alive
    for j in range(alive):
        thread = FIELDS + WIDTH * j
        line[thread + STATE] = scratch[j, STATE]
        line[thread + PATH] = scratch[j, PATH]
        line[thread + MARK] = scratch[j, MARK]
        line[thread + SINCE] = scratch[j, SINCE]


@kernel()
def _begin(
    row: int, code: int, time: int, slot: int, attempts: Lines, begins: Ids, targets: Ids, settings: Ids
) -> None:
    """Write a new attempt that begins at a row, with a thread in each of the first states."""
    line = attempts[slot]
    line[NEXT], line[CODE], line[ALIVE], line[FOUND], line[NODE] = NONE, code, 1, 0, NONE
    line[START], line[TIME] = settings[FIRST_ROW] + row, time
    first = begins[begins.size - 2]
    line[COUNT] = targets.size - first
    for j in range(targets.size - first):
        thread = FIELDS + WIDTH * j
        line[thread + STATE], line[thread + PATH], line[thread + MARK] = targets[first + j], NONE, NONE
        line[thread + SINCE] = NEVER


_READ = nb.types.Array(nb.int64, 1, "A", readonly=True)
_FLAGS = nb.types.Array(nb.bool_, 1, "A", readonly=True)
_ROW = nb.int64[::1]
_LINES = nb.int64[:, ::1]


@kernel(
    nb.void(
        *(_READ, _READ, _READ, _FLAGS, _ROW, _ROW, _LINES, _ROW, _ROW, _ROW),
        *(_ROW, _ROW, _LINES, _LINES, _ROW, _LINES, _ROW, _LINES, _ROW),
    )
)
def advance(
    codes: Ids,
    times: Ids,
    masks: Ids,
    answers: Mask,
    variables: Ids,
    unless: Ids,
    lapses: Lines,
    begins: Ids,
    targets: Ids,
    settings: Ids,
    heads: Ids,
    tails: Ids,
    attempts: Lines,
    nodes: Lines,
    touched: Ids,
    made: Lines,
    seen: Ids,
    scratch: Lines,
    at: Ids,
) -> None:
    """Take rows from `at[ROW]` on, until all are taken or there is no room for what the next one may make.

    `masks` are the variables whose conditions hold for a row, `answers` those of the tests (`candidates`).
    """
    separate = 1 if settings[AFTER_MATCH] == TO_NEXT else 0
    within = settings[WITHIN]
    beginning = begins[begins.size - 1] - begins[begins.size - 2]
    for row in range(at[ROW], codes.size):
        at[ROW] = row
        code, mask, time = codes[row], masks[row], times[row]
        slot = heads[code]
        if slot == NONE and not _opens(mask, settings):
            continue
        threads, chain, most = beginning, 2, beginning
        while slot != NONE:
            threads += attempts[slot, COUNT]
            most = max(most, attempts[slot, COUNT])
            chain += 1
            slot = attempts[slot, NEXT]
        most *= settings[FAN_OUT]
        if settings[ALIKE] == 1:
            most = min(most, variables.size)
        if most > scratch.shape[0]:
            at[WIDE] = most
            return
        full = at[NODES] + threads > nodes.shape[0] or at[MADE] + chain > made.shape[0]
        if full or at[TOUCHED] + 4 * chain > touched.size:
            return
        at[STAMP] += 1
        shared, over = settings[MERGES], 0
        slot = heads[code]
        while slot != NONE:
            line = attempts[slot]
            if line[COUNT] > 0:
                touched[at[TOUCHED]] = slot
                at[TOUCHED] += 1
                if line[FOUND] == 1:
                    shared = 0
                if time - line[TIME] >= within:
                    line[COUNT] = 0
                else:
                    _step(
                        line,
                        row,
                        time,
                        mask,
                        shared,
                        0,
                        answers,
                        variables,
                        unless,
                        lapses,
                        begins,
                        targets,
                        settings,
                        nodes,
                        seen,
                        scratch,
                        at,
                    )
            if line[COUNT] == 0:
                over = 1
            slot = line[NEXT]
        limit = NONE
        if over == 1:
            _drop_failed(code, heads, tails, attempts, touched, at)
            limit = _settle(code, separate, heads, tails, attempts, touched, made, at)
        if not _opens(mask, settings):
            continue
        slot = at[USED]
        _begin(row, code, time, slot, attempts, begins, targets, settings)
        line = attempts[slot]
        _step(
            line,
            row,
            time,
            mask,
            shared,
            1,
            answers,
            variables,
            unless,
            lapses,
            begins,
            targets,
            settings,
            nodes,
            seen,
            scratch,
            at,
        )
        if line[START] < limit or (line[COUNT] == 0 and line[FOUND] == 0):
            if line[FOUND] == 1:
                at[PENDING] -= 1
            line[ALIVE] = 0
            continue
        at[USED] += 1
        touched[at[TOUCHED]] = slot
        at[TOUCHED] += 1
        if heads[code] == NONE:
            heads[code] = slot
        else:
            attempts[tails[code], NEXT] = slot
            touched[at[TOUCHED]] = tails[code]
            at[TOUCHED] += 1
        tails[code] = slot
        if line[COUNT] == 0:
            _settle(code, separate, heads, tails, attempts, touched, made, at)
    at[ROW] = codes.size


@kernel()
def _drop_failed(code: int, heads: Ids, tails: Ids, attempts: Lines, touched: Ids, at: Ids) -> None:
    """Remove the attempts of a partition that have neither threads nor a match."""
    before, slot = NONE, heads[code]
    while slot != NONE:
        after = attempts[slot, NEXT]
        if attempts[slot, COUNT] == 0 and attempts[slot, FOUND] == 0:
            _remove(slot, attempts, touched, at)
            if before == NONE:
                heads[code] = after
            else:
                attempts[before, NEXT] = after
                touched[at[TOUCHED]] = before
                at[TOUCHED] += 1
        else:
            before = slot
        slot = after
    tails[code] = before


@nb.njit(inline="always")
def _ask(
    found: Lines, at: int, lines: int, row: int, path: int, state: int, variables: Ids, unless: Ids
) -> None:
    """Write the candidates for a thread."""
    for i in range(lines):
        found[at + i, 0], found[at + i, 1] = row, path
        found[at + i, 2] = variables[state] if i == 0 else unless[state]


@kernel(nb.int64(*(_READ, _READ, _READ, _ROW, _ROW, _ROW, _ROW, _ROW, _ROW, _LINES, _LINES)))
def candidates(
    codes: Ids,
    times: Ids,
    masks: Ids,
    variables: Ids,
    unless: Ids,
    begins: Ids,
    targets: Ids,
    settings: Ids,
    heads: Ids,
    attempts: Lines,
    found: Lines,
) -> int:
    """The threads that each row comes to, in the order in which `advance` asks whether their tests hold.

    Lines of `found` are the row, the last node of the path, and the variable; if rows may be in between, each
    thread has a second line with the variable that ends it. Returns how many there are, even if there is no
    room for them. No two rows are of one partition.
    """
    count, lines = 0, 1 + settings[SKIPS]
    first = begins[begins.size - 2]
    for row in range(codes.size):
        slot = heads[codes[row]]
        if slot == NONE and not _opens(masks[row], settings):
            continue
        while slot != NONE:
            line = attempts[slot]
            if times[row] - line[TIME] < settings[WITHIN]:
                for j in range(line[COUNT]):
                    if count + lines <= found.shape[0]:
                        thread = FIELDS + WIDTH * j
                        _ask(
                            found,
                            count,
                            lines,
                            row,
                            line[thread + PATH],
                            line[thread + STATE],
                            variables,
                            unless,
                        )
                    count += lines
            slot = line[NEXT]
        if not _opens(masks[row], settings):
            continue
        for j in range(targets.size - first):
            if count + lines <= found.shape[0]:
                _ask(found, count, lines, row, NONE, targets[first + j], variables, unless)
            count += lines
    return count


@kernel(nb.void(_READ, nb.int64, nb.int64, _ROW, _ROW, _LINES, _ROW, _LINES, _ROW))
def close(
    codes: Ids,
    latest: int,
    separate: int,
    heads: Ids,
    tails: Ids,
    attempts: Lines,
    touched: Ids,
    made: Lines,
    at: Ids,
) -> None:
    """No row will come to attempts of some partitions that began at `latest` or before: they are settled."""
    for i in range(codes.size):
        code = codes[i]
        over = 0
        slot = heads[code]
        while slot != NONE:
            if attempts[slot, TIME] <= latest:
                attempts[slot, COUNT] = 0
                touched[at[TOUCHED]] = slot
                at[TOUCHED] += 1
                over = 1
            slot = attempts[slot, NEXT]
        if over == 1:
            _drop_failed(code, heads, tails, attempts, touched, at)
            _settle(code, separate, heads, tails, attempts, touched, made, at)


@kernel(nb.int64(_READ, _READ, _ROW, _ROW))
def trace(parents: Ids, last: Ids, begins: Ids, path: Ids) -> int:
    """The paths that end at some nodes, from their first nodes on: `path[begins[i] : begins[i + 1]]`.

    Returns the length of all; if `path` has no room, only `begins` is written.
    """
    total = 0
    for i in range(last.size):
        begins[i] = total
        node = last[i]
        while node != NONE:
            total += 1
            node = parents[node]
    begins[last.size] = total
    if total > path.size:
        return total
    for i in range(last.size):
        node, place = last[i], begins[i + 1]
        while node != NONE:
            place -= 1
            path[place] = node
            node = parents[node]
    return total


@kernel(nb.void(_READ, _LINES, nb.boolean[::1]))
def reachable(parents: Ids, attempts: Lines, needed: Mask) -> None:
    """Flag the nodes on the paths of attempts in use."""
    for slot in range(attempts.shape[0]):
        line = attempts[slot]
        if line[ALIVE] == 0:
            continue
        if line[FOUND] == 1 and line[NODE] != NONE:
            needed[line[NODE]] = True
        for j in range(line[COUNT]):
            node = line[FIELDS + WIDTH * j + PATH]
            if node != NONE:
                needed[node] = True
    for node in range(parents.size - 1, -1, -1):
        if needed[node] and parents[node] != NONE:
            needed[parents[node]] = True
