"""Seeds by hand: `make simulate`, or one of them again with `make simulate ARGS="--seed 17"`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter

from tests.simulation.world import DIALS, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="only this seed, with all that happened")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many seeds")
    parser.add_argument("--without", nargs="*", default=[], choices=sorted(DIALS), help="dials to switch off")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that fails")
    given = parser.parse_args()
    dials = DIALS - set(given.without)
    if given.seed is not None:
        print("\n".join(simulate(given.seed, dials=dials).history))
        return 0
    begun, failed = time.monotonic(), Counter[str]()
    for seed in range(given.first, given.first + given.seeds):
        try:
            simulate(seed, dials=dials)
        except AssertionError as error:
            cause = error.__cause__
            failed[f"{type(cause).__name__}: {str(cause).splitlines()[0][:100]}"] += 1
            print(error, flush=True)
            if cause is not None and not isinstance(cause, AssertionError):
                traceback.print_exception(cause)
            if given.stop:
                break
        if seed % 500 == 499:
            print(f"{seed + 1 - given.first} seeds, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{given.seeds} seeds in {time.monotonic() - begun:.0f} s, {failed.total()} failed")
    for what, count in failed.most_common(20):
        print(f"{count:5} {what}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
