"""A part of `make fuzz`: no input and no text ends in a traceback, a hang, a crash or a lost row."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import inputs, run

FIRST = 1_000_000
"""Not the seeds that `make fuzz` begins with."""


@pytest.mark.parametrize(("kind", "count"), [("input", 40), ("query", 100)])
def test_a_part_of_the_fuzzing_finds_nothing(kind: str, count: int) -> None:
    report = run.run(kind, FIRST, FIRST + count)
    assert report.failed == {}
    assert report.tried == count


def test_many_inputs_give_rows_and_many_rejections(tmp_path: Path) -> None:
    """What only ever fails to open would find nothing."""
    found = [inputs.check(seed, tmp_path) for seed in range(FIRST, FIRST + 25)]
    assert sum(not said.endswith(" 0 rejected") for said in found) > 3
    assert sum(": 0 rows" not in said for said in found) > 6
    assert {said.split(":")[0] for said in found} == set(inputs.FORMATS)


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("lambda seed, root: 1 / 0", "TRACEBACK ZeroDivisionError"),
        ("lambda seed, root: __import__('time').sleep(60)", "HANG"),
        ("lambda seed, root: __import__('os').kill(__import__('os').getpid(), 11)", "CRASH, exit code -11"),
        ("lambda seed, root: str(len(b'x' * (64 << 20)))", "BYTES"),
    ],
)
def test_what_goes_wrong_is_found(check: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fuzzer that cannot fail finds nothing: seed 1 goes wrong, 0 and 2 do not."""
    program = f"from tests.fuzz import worker; wrong = {check}; " + (
        "worker.KINDS['x'] = lambda: lambda seed, root: wrong(seed, root) if seed == 1 else 'fine'; "
        "import sys; worker.main('x', int(sys.argv[2]), int(sys.argv[3]))"
    )
    monkeypatch.setattr(run, "PROGRAM", ["-c", program])
    monkeypatch.setattr(run, "SECONDS", 1.5)
    monkeypatch.setattr(run, "WAITING", 6.0)
    monkeypatch.setattr(run, "MEMORY", 16 << 20)
    report = run.run("x", 0, 3)
    assert list(report.failed) == [1]
    assert report.failed[1].startswith(reason)
    assert report.tried == 3
