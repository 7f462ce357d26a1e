"""Many inputs and query texts; `--kind input --seed 7` tries one again."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.run import Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=["input", "query"], help="with --seed: try one again")
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.seed is not None:
        report = run(given.kind or "input", given.seed, given.seed + 1)
        print(dict(report.ends), *report.failed.values(), sep="\n")
        return 1 if report.failed else 0
    failed = 0
    for kind, count in (("input", given.inputs), ("query", given.queries)):
        began = time.monotonic()
        report = run(kind, given.first, given.first + count, show=True)
        _show(kind, report, time.monotonic() - began)
        failed += len(report.failed)
    return 1 if failed else 0


def _show(kind: str, report: Report, seconds: float) -> None:
    slow, large = report.slowest, report.largest
    print(f"{kind}: {report.tried:,} tried in {seconds:.0f} s, {len(report.failed)} failed")
    print(f"  slowest {slow[0]:.2f} s (seed {slow[1]}), largest {large[0] >> 20} MB (seed {large[1]})")
    for said, count in report.ends.most_common(12):
        print(f"  {count:7,} {said}")
    for seed, wrong in report.failed.items():
        print(f"  python -m tests.fuzz --kind {kind} --seed {seed}   # {wrong.splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
