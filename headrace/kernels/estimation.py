"""The inner loops of skew estimation (Srivastava & Widom §6.1 and Figure 4): O(n · t_max) per arrival.

`seen[i, t]` is τ_i^max as of t ticks ago, shifted when the tick moves on; `delta[j, i, t]` is δ_ij[t], laid
out so that one arrival on j touches one block.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from headrace.kernels.compiling import kernel

MIN = np.iinfo(np.int64).min
MAX = np.iinfo(np.int64).max
COUNTED = np.iinfo(np.int32).max

_I64, _LINE, _SEEN, _DELTA = nb.int64, nb.int64[::1], nb.int64[:, ::1], nb.int64[:, :, ::1]
_TIMES = (_LINE, nb.types.Array(_I64, 1, "C", readonly=True))
_MEMORY = nb.types.Tuple((_DELTA, *[nb.int32[:, :, ::1]] * 5, _LINE))
_RULE = nb.types.Tuple((nb.float64, _I64, _I64, _I64))


@kernel(usual=[(_SEEN, _I64)])
def roll(seen, steps):  # type: ignore[no-untyped-def]
    """Move on by `steps` ticks: each stream's maximum is carried forward."""
    width = seen.shape[1]
    for i in range(seen.shape[0]):
        for t in range(width - 1, -1, -1):
            seen[i, t] = seen[i, max(t - steps, 0)]


@kernel()
def skew(newest, time):  # type: ignore[no-untyped-def]
    """max(τ_i^max − τ + 1, 0), saturated; 0 where nothing was seen."""
    if newest == MIN or newest < time:
        return 0
    if time < 0 and newest >= MAX + time:
        return MAX
    return newest - time + 1


@kernel()
def widen(delta, seen, j, time):  # type: ignore[no-untyped-def]
    """§6.1: δ_ij[t] is the greatest skew seen. Maxima fall with t, so the first 0 ends the row."""
    width = seen.shape[1]
    for i in range(seen.shape[0]):
        for t in range(width):
            estimate = skew(seen[i, t], time)
            if estimate == 0:
                break
            if estimate > delta[j, i, t]:
                delta[j, i, t] = estimate


@kernel()
def adapt(  # type: ignore[no-untyped-def]
    delta, window, count, limit, hits, trials, falls, seen, j, time, alpha, rule, step
):
    """Figure 4, lines 3–14, and the adaptive adaptivity of §6.2 where `rule` has a rate.

    `step` is what this row adds to `count`: 1, or the ticks since the row of j before. Lowering rounds down,
    so that an estimate reaches its window in whole ticks.
    """
    width = seen.shape[1]
    rate, patience, least, most = rule
    for i in range(seen.shape[0]):
        for t in range(width):
            estimate = skew(seen[i, t], time)
            count[j, i, t] = min(count[j, i, t] + step, COUNTED)
            trials[j, i, t] += 1
            if estimate > delta[j, i, t]:
                delta[j, i, t] = estimate
                window[j, i, t] = count[j, i, t] = falls[j, i, t] = 0
                hits[j, i, t] += 1
            else:
                if estimate > window[j, i, t]:
                    window[j, i, t] = estimate
                if count[j, i, t] > limit[j, i, t]:
                    excess = delta[j, i, t] - window[j, i, t]
                    kept = np.int64(np.floor(alpha * excess)) if alpha < 1.0 else excess
                    falls[j, i, t] = falls[j, i, t] + 1 if kept < excess else 0
                    delta[j, i, t] = window[j, i, t] + kept
                    window[j, i, t] = count[j, i, t] = 0
            if rate >= 0.0:
                if trials[j, i, t] >= limit[j, i, t]:
                    if hits[j, i, t] > rate * trials[j, i, t]:
                        limit[j, i, t] = min(2 * limit[j, i, t], most)
                    hits[j, i, t] = trials[j, i, t] = 0
                if falls[j, i, t] >= patience:
                    limit[j, i, t] = max(limit[j, i, t] // 2, least)
                    falls[j, i, t] = 0


@kernel(
    usual=[
        (_LINE, times, _LINE, _I64, _SEEN, _DELTA, nb.boolean, _MEMORY, nb.float64, _RULE) for times in _TIMES
    ]
)
def observe(  # type: ignore[no-untyped-def]
    streams, times, ticks, now, seen, delta, adaptive, memory, alpha, rule
):
    """Take arrivals in order; each is judged by what was seen before it. Returns the tick reached.

    With `last`, the tick of the last row of each stream, a window is a time; without, a number of rows.
    """
    window, count, limit, hits, trials, falls, last = memory
    for k in range(len(streams)):
        j, time, tick = streams[k], times[k], ticks[k]
        if tick > now:
            roll(seen, tick - now)
            now = tick
        if adaptive:
            step = 1
            if len(last):
                step = 0 if last[j] == MIN else now - last[j]
                last[j] = now
            adapt(delta, window, count, limit, hits, trials, falls, seen, j, time, alpha, rule, step)
        else:
            widen(delta, seen, j, time)
        if time > seen[j, 0]:
            seen[j, 0] = time
    return now


@kernel(usual=[(_SEEN, _DELTA, _LINE)])
def due(seen, delta, promise):  # type: ignore[no-untyped-def]
    """Raise each promise to max over i and t of τ_i^max[now − t] − δ_ij[t].

    Maxima fall with t and δ ≥ 0, so a row ends where its maximum no longer exceeds the promise.
    """
    for j in range(delta.shape[0]):
        best = promise[j]
        for i in range(delta.shape[1]):
            for t in range(seen.shape[1]):
                time = seen[i, t]
                if time <= best:
                    break
                if time >= MIN + delta[j, i, t]:
                    best = max(best, time - delta[j, i, t])
        promise[j] = best
