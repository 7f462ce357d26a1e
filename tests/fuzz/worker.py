"""One process that tries seeds one after the other, and says on its standard output how each ended."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from headrace.errors import HeadraceError

MEMORY = "/dev/shm"
"""Where files need no disk: nothing here has to survive."""
Check = Callable[[int, Path], str]


def _inputs() -> Check:
    from tests.fuzz import inputs

    return inputs.check


def _queries() -> Check:
    from tests.fuzz import queries

    return queries.check


KINDS: dict[str, Callable[[], Check]] = {"input": _inputs, "query": _queries}


def _peak() -> int:
    """Bytes of memory at the peak since `_forget_peak`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    return 0


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def main(kind: str, begin: int, end: int) -> None:
    out, check = sys.stdout, KINDS[kind]()
    for seed in range(begin, end):
        print(json.dumps({"seed": seed}), file=out, flush=True)
        root = Path(tempfile.mkdtemp(prefix="headrace-fuzz-", dir=MEMORY if Path(MEMORY).is_dir() else None))
        _forget_peak()
        before = _peak()
        try:
            said, trace = check(seed, root), ""
        except HeadraceError as error:
            said, trace = f"ended {error.code}", ""
        except BaseException as error:
            said, trace = f"TRACEBACK {type(error).__name__}", traceback.format_exc()
        took = max(0, _peak() - before)
        shutil.rmtree(root, ignore_errors=True)
        print(json.dumps({"seed": seed, "said": said, "trace": trace, "bytes": took}), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
