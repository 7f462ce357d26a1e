"""The world changes between a stop and the next start: no row is lost or read twice, or an error says so."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk
from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.embedded.feeds import Step
from headrace.runtimes.embedded.runner import Result
from tests.laws import effort

TEXT = """
[pipeline]
name = "world"
runtime = "embedded"
checkpoint = "state"
clock = "event"
every_rows = 5
{streams}
[[queries]]
name = "all"
sql = "SELECT id FROM a UNION ALL SELECT id FROM b"
sink = "all.jsonl"
rejected = "rejected.jsonl"
"""
STREAM = """
[streams.{name}]
source = {{ path = "{name}", follow = {follow}, format = "{format}", block_bytes = {block} }}
schema = "id BIGINT, at BIGINT"
time = {{ column = "at", unit = "ms" }}
bounds = {{ disorder = "1 day" }}
"""
ENDED: set[str] = set()
"""The streams that had ended when the last run did."""
END = 10**9
"""A time after all others: its row closes what a followed stream still holds."""


class Killed(Exception):
    """The process ends here."""


class Mortal(Runner):
    """A run that is killed at its n-th step."""

    steps = -1

    def apply(self, step: Step) -> None:
        self.steps -= 1
        if self.steps == -1:
            raise Killed
        super().apply(step)


def build(root: Path, *, follow: bool = False, format: str = "json", block: int = 4 << 20) -> Path:
    for name in "ab":
        (root / name).mkdir(parents=True)
    more = {"follow": str(follow).lower(), "format": format, "block": block}
    streams = "".join(STREAM.format(name=name, **more) for name in "ab")
    file = root / "p.toml"
    file.write_text(TEXT.format(streams=streams))
    return file


def lines(ids: Iterable[int], begin: int = 0) -> str:
    return "".join(json.dumps({"id": i, "at": begin + n * 1000}) + "\n" for n, i in enumerate(ids))


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def run(file: str | Path, *, steps: int | None = None, kill: int = -1) -> Result | None:
    """Run until nothing more comes; or stop, or be killed, before."""
    ENDED.clear()
    runner = Mortal(load(file), wait=lambda _: runner.stop())
    runner.steps = kill
    try:
        result = runner.run(max_steps=steps)
    except Killed:
        return None
    finally:
        ENDED.update(getattr(getattr(runner, "feed", None), "ended", ()))
    for account in result.progress.streams.values():
        assert account.rows_in == account.rows_processed + account.rows_late + account.rows_rejected
    return result


def answered(root: Path) -> Counter[int]:
    found = Counter(json.loads(line)["id"] for line in (root / "all.jsonl").read_text().splitlines())
    return Counter({each: n for each, n in found.items() if each < END})


def rejected(root: Path) -> list[str]:
    return sorted(json.loads(line)["row"] for line in (root / "rejected.jsonl").read_text().splitlines())


# --- the reported scripts ---------------------------------------------------------------------------------


def test_a_path_spelled_otherwise_and_a_moved_folder_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect 00: 1,000 lines became 2,000 rows."""
    home = tmp_path / "home"
    build(home, follow=True)
    (home / "a" / "s.json").write_text(lines(range(100)))
    (home / "b" / "s.json").write_text(lines([END], END))
    monkeypatch.chdir(home)
    run("p.toml")
    append(home / "a" / "s.json", lines(range(100, 150)))
    run(home / "p.toml")
    (tmp_path / "link").symlink_to(home)
    append(home / "a" / "s.json", lines(range(150, 200)))
    run(tmp_path / "link" / "p.toml")
    monkeypatch.chdir(tmp_path)
    moved = tmp_path / "moved"
    home.rename(moved)
    append(moved / "a" / "s.json", lines(range(200, 250), 200_000) + lines([END], END))
    result = run("moved/p.toml")
    assert result is not None
    assert result.progress.streams["a"].rows_in == 251
    assert answered(moved) == Counter(range(250))


@pytest.mark.parametrize("follow", [False, True])
def test_a_file_that_sorts_first_comes_before_the_restart(tmp_path: Path, follow: bool) -> None:
    """Defect 01: rows of the new file were passed over in place of those that had been taken."""
    file = build(tmp_path, follow=follow)
    (tmp_path / "a" / "2.json").write_text(lines(range(100)))
    for n in range(10):
        (tmp_path / "b" / f"{n}.json").write_text(lines(range(1000 + 10 * n, 1010 + 10 * n), n * 10_000))
    run(file, steps=4)
    (tmp_path / "a" / "1.json").write_text(lines(range(500, 600)))
    for name in "ab":
        (tmp_path / name / "9z.json").write_text(lines([END], END))
    run(file)
    assert answered(tmp_path) == Counter([*range(100), *range(500, 600), *range(1000, 1100)])


def test_a_block_taken_in_part_is_read_again_as_it_was_though_the_file_grew(tmp_path: Path) -> None:
    """Defect 03: a rejected row was lost and another repeated."""
    file = build(tmp_path, follow=True)
    a, b = tmp_path / "a" / "s.json", tmp_path / "b" / "s.json"
    a.write_text(lines(range(50)) + '{"id": 777, "at": "type"}\n' + lines([51], 51_000))
    b.write_text(lines(range(1000, 1020)))
    run(file, steps=1)
    append(a, '{"id": syntax\n' + lines([52], 52_000) + lines([END], END))
    append(b, lines([END], END))
    run(file)
    assert answered(tmp_path) == Counter([*range(50), 51, 52, *range(1000, 1020)])
    assert rejected(tmp_path) == sorted(['{"id": 777, "at": "type"}', '{"id": syntax'])


def test_a_block_of_csv_taken_in_part_is_read_again_as_it_was(tmp_path: Path) -> None:
    """Defect 03b: the block was parsed at once before, and line by line when a bad line had come."""
    file = build(tmp_path, follow=True, format="csv")
    a, b = tmp_path / "a" / "s.csv", tmp_path / "b" / "s.csv"
    a.write_text("id,at\n" + "".join(f" {i},{i * 1000}\n" for i in range(50)))
    b.write_text("id,at\n" + "".join(f"{1000 + i},{i * 1000}\n" for i in range(20)))
    run(file, steps=1)
    append(a, "bad\n" + "".join(f"{i},{i * 1000}\n" for i in range(50, 100)) + f"{END},{END}\n")
    append(b, f"{END},{END}\n")
    run(file)
    assert answered(tmp_path) == Counter([*range(100), *range(1000, 1020)])
    assert rejected(tmp_path) == ["bad"]


# --- what was read has changed ----------------------------------------------------------------------------


def half_read(root: Path, follow: bool = False) -> Path:
    file = build(root, follow=follow)
    (root / "a" / "s.json").write_text(lines(range(100)))
    (root / "b" / "s.json").write_text(lines(range(1000, 1020)))
    run(file, steps=1)
    return file


def changed(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace('"id": 3,', '"id": 4,') + lines([7]))


def replaced(path: Path) -> None:
    path.write_text(lines(range(5000, 5200)))


ALTERATIONS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "gone": (Path.unlink, "HR-C002"),
    "shorter": (lambda path: os.truncate(path, 40), "HR-C002"),
    "changed": (changed, "HR-C002"),
    "replaced": (replaced, "HR-C002"),
}


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("how", ALTERATIONS)
def test_a_file_changed_in_what_was_read_stops_the_restart_and_nothing_is_touched(
    tmp_path: Path, how: str, follow: bool
) -> None:
    file = half_read(tmp_path, follow)
    alter, code = ALTERATIONS[how]
    path = tmp_path / "a" / "s.json"
    before, kept = (tmp_path / "all.jsonl").read_bytes(), path.read_bytes()
    alter(path)
    with pytest.raises(HeadraceError, match=code) as error:
        run(file)
    assert str(path.resolve()) in str(error.value)
    assert (tmp_path / "all.jsonl").read_bytes() == before
    path.write_bytes(kept)  # put back, as the hint says: the run goes on
    for name in "ab":
        (tmp_path / name / "z.json").write_text(lines([END], END))
    run(file)
    assert answered(tmp_path) == Counter([*range(100), *range(1000, 1020)])


def test_a_file_that_was_rotated_while_nobody_read_is_read_to_its_end_beside(tmp_path: Path) -> None:
    file = half_read(tmp_path, follow=True)
    path = tmp_path / "a" / "s.json"
    append(path, lines(range(100, 120), 100_000))
    path.rename(tmp_path / "a" / ".s.json.1")  # the pattern does not name it
    path.write_text(lines(range(200, 220), 200_000) + lines([END], END))
    append(tmp_path / "b" / "s.json", lines([END], END))
    result = run(file)
    assert result is not None
    assert any("rotated" in each for each in result.progress.messages)
    assert answered(tmp_path) == Counter([*range(120), *range(200, 220), *range(1000, 1020)])


def test_a_file_that_was_read_and_renamed_is_not_read_again(tmp_path: Path) -> None:
    file = build(tmp_path)
    for n in range(3):
        (tmp_path / "a" / f"{n}.json").write_text(lines(range(n * 10, n * 10 + 10), n * 10_000))
    (tmp_path / "b" / "s.json").write_text(lines(range(1000, 1030)))
    run(file, steps=2)
    (tmp_path / "a" / "0.json").rename(tmp_path / "a" / "5.json")
    result = run(file)
    assert result is not None
    assert any("was renamed to" in each for each in result.progress.messages)
    assert answered(tmp_path) == Counter([*range(30), *range(1000, 1030)])


def test_a_last_line_without_end_is_a_row_and_what_is_added_to_it_is_none(tmp_path: Path) -> None:
    """Of a file that is not followed. The growth of a finished file is not read; a half line never is."""
    file = build(tmp_path, format="csv")
    (tmp_path / "a" / "s.csv").write_text("id,at\n1,1000\n2,2000\n3,30")
    (tmp_path / "b" / "s.csv").write_text("id,at\n7,100\n8,2500\n")
    run(file, steps=1)
    append(tmp_path / "a" / "s.csv", "00\n4,4000\n")
    run(file)
    assert answered(tmp_path) == Counter([1, 2, 3, 7, 8])
    assert not rejected(tmp_path)


# --- the record stays small -------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [False, True])
def test_a_commit_does_not_name_all_files_that_were_read(tmp_path: Path, follow: bool) -> None:
    sizes, names = [], 0
    file = build(tmp_path, follow=follow)
    (tmp_path / "b" / "s.json").write_text(lines([END], END))
    for _ in range(3):
        for n in range(names, names + 150):
            (tmp_path / "a" / f"{n:06}.json").write_text(lines([n], n))
        names += 150
        result = run(file, steps=1 if not follow else None)
        assert result is not None
        sizes.append(max((tmp_path / "state").glob("commit-*")).stat().st_size)
    assert sizes[2] < sizes[1] * 1.1 if follow else sizes[2] < 10_000
    assert sizes[0] < 20_000


def test_one_damaged_list_of_files_costs_nothing_and_two_are_an_error(tmp_path: Path) -> None:
    file = build(tmp_path)
    for n in range(6):
        (tmp_path / "a" / f"{n}.json").write_text(lines(range(n * 10, n * 10 + 10), n * 10_000))
    (tmp_path / "b" / "s.json").write_text(lines(range(1000, 1060)))
    run(file, steps=3)
    one, two = sorted((tmp_path / "state" / "files").glob("a-*"))
    whole = one.read_bytes()
    for path in (one, two):
        path.write_bytes(whole[:10] + b"?" + whole[11:])
        run(file, steps=1)
        assert path.read_bytes().startswith(whole)
    for path in (one, two):
        path.write_bytes(b"")
    with pytest.raises(HeadraceError, match="HR-D007"):
        run(file)


# --- the law ----------------------------------------------------------------------------------------------

Changes = st.lists(
    st.sampled_from(["arrives first", "arrives last", "grows", "moves", "is respelled", "half a line"]),
    max_size=3,
)
Worlds = st.lists(st.tuples(st.integers(0, 6), st.booleans(), Changes), min_size=1, max_size=4)
"""For each run: at which step it ends, whether it is killed there, and what happens before the next."""


class World:
    """Files of two streams, and the rows that were written to them."""

    def __init__(self, root: Path, follow: bool, block: int) -> None:
        self.home, self.follow, self.next = root / "w0", follow, 0
        build(self.home, follow=follow, block=block)
        self.spelled: Path = self.home / "p.toml"
        for name in "ab":
            self.arrive(name, "m")

    def rows(self, name: str) -> str:
        """A few rows, one of them bad, by times that differ between the streams."""
        ids = range(self.next, self.next + 6)
        self.next += 6
        begin = self.next * (700 if name == "a" else 1100)
        return lines([*ids][:3], begin) + f"bad {self.next}\n" + lines([*ids][3:], begin + 3000)

    def arrive(self, name: str, sort: str) -> None:
        (self.home / name / f"{sort}{self.next:05}.json").write_text(self.rows(name))

    def change(self, how: str) -> None:
        for name in "ab":
            if how.startswith("arrives"):
                self.arrive(name, "a" if how == "arrives first" else "z")
            elif how == "grows" and self.follow:
                append(max((self.home / name).iterdir()), self.rows(name))
            elif how == "half a line" and self.follow:
                self.cut(max((self.home / name).iterdir()), self.rows(name))
        if how == "moves":
            moved = self.home.with_name(f"w{self.next}-moved")
            shutil.copytree(self.home, moved)  # to another file system: other inodes
            shutil.rmtree(self.home)
            self.home = moved
            self.next += 1
        self.spelled = self.home / "p.toml"
        if how == "is respelled":
            self.spelled = self.home / "a" / ".." / ".." / self.home.name / "p.toml"

    def cut(self, path: Path, text: str) -> None:
        """The file is seen while its last line is being written."""
        append(path, text[:-7])
        run(self.spelled, steps=2)
        append(path, text[-7:])

    def close(self) -> None:
        for name in "ab":
            (self.home / name / "zz.json").write_text(lines([END], END))


class Unsynced(disk.Disk):
    """Nothing is made safe from a loss of power: a kill is all that happens here."""

    def flush(self, file: BinaryIO) -> None:
        file.flush()

    def sync(self, path: Path) -> None:
        return None


@effort(0.4, "an example is several runs")
@given(Worlds, st.booleans(), st.sampled_from([60, 150, 4 << 20]))
def test_outputs_are_those_of_a_run_without_a_break(runs: Any, follow: bool, block: int) -> None:
    with TemporaryDirectory() as folder, disk.using(Unsynced()):
        world = World(Path(folder), follow, block)
        for steps, killed, changes in runs:
            result = run(world.spelled, **({"kill": steps} if killed else {"steps": steps}))
            if ENDED:
                break  # what comes after the end of a bounded stream is not read
            for how in changes:
                world.change(how)
        else:
            world.close()
        result = run(world.spelled)
        whole = Path(folder) / "whole"
        file = build(whole, follow=follow, block=block)
        for name in "ab":
            shutil.rmtree(whole / name)
            shutil.copytree(world.home / name, whole / name)
        expected = run(file)
        assert result is not None
        assert expected is not None
        assert answered(world.home) == answered(whole)
        assert rejected(world.home) == rejected(whole)
        for name in "ab":
            mine, other = result.progress.streams[name], expected.progress.streams[name]
            assert (mine.rows_in, mine.rows_rejected) == (other.rows_in, other.rows_rejected)


# --- the clock and the tables -----------------------------------------------------------------------------

CLOCKED = """
[pipeline]
name = "clocked"
runtime = "embedded"
checkpoint = "state"
[streams.s]
source = { path = "s.json", follow = true }
schema = "id BIGINT, at BIGINT"
time = { column = "at", unit = "us" }
bounds = { latency = "2 s" }
[[queries]]
name = "all"
sql = "SELECT count(*) AS n, window_end FROM s [RANGE 1 SECOND SLIDE 1 SECOND]"
sink = "n.jsonl"
"""


def test_a_clock_that_leaps_ahead_and_comes_back_makes_no_row_late_through_restarts(tmp_path: Path) -> None:
    """Defect 11: after a leap of 50 years every row was late, in this run and in those after it."""

    class Wild:
        passed, offset = 10**15, 0

        def now(self) -> int:
            return self.passed + self.offset

        def monotonic(self) -> int:
            return self.passed

    (tmp_path / "p.toml").write_text(CLOCKED)
    (tmp_path / "s.json").write_text("")
    wild, written, offsets = Wild(), 0, [0]

    def wait(_: float) -> None:
        nonlocal written
        if not offsets:
            runner.stop()
            return
        wild.offset = offsets.pop(0)
        wild.passed += 500_000
        append(tmp_path / "s.json", json.dumps({"id": written, "at": wild.passed}) + "\n")
        written += 1

    for _ in range(2):
        offsets += [50 * 365 * 86_400 * 10**6, 0, 3600 * 10**6, -3600 * 10**6, 0]
        runner = Runner(load(tmp_path / "p.toml"), clock=wild, wait=wait)
        result = runner.run()
        account = result.progress.streams["s"]
        assert (account.rows_in, account.rows_processed, account.rows_late) == (written, written, 0)
        assert any("jumped" in each for each in result.progress.messages)


def test_a_table_that_changed_between_two_runs_is_refused(tmp_path: Path) -> None:
    """Defect 21: it was neither used nor refused."""
    text = TEXT.format(
        streams="".join(STREAM.format(name=n, follow="false", format="json", block=60) for n in "ab")
    )
    text = text.replace("[[queries]]", '[tables]\nt = "t.csv"\n[[queries]]').replace(
        "SELECT id FROM a UNION ALL SELECT id FROM b",
        "SELECT t.k AS id FROM a [NOW] AS a, b [NOW] AS b, t WHERE a.id = b.id AND a.id = t.k",
    )
    home = tmp_path / "home"
    for name in "ab":
        (home / name).mkdir(parents=True)
        (home / name / "s.json").write_text(lines(range(9)))
    (home / "p.toml").write_text(text)
    (home / "t.csv").write_text("k,v\n1,one\n2,two\n")
    run(home / "p.toml", steps=2)
    moved = home.rename(tmp_path / "moved")
    (moved / "t.csv").write_text("k,v\n1,one\n3,three\n")
    with pytest.raises(HeadraceError, match="HR-D005") as error:
        run(moved / "p.toml")
    assert "table t" in str(error.value)
    (moved / "t.csv").write_text("k,v\n1,one\n2,two\n")  # put back, in another place: the run goes on
    run(moved / "p.toml")
    assert answered(moved) == Counter([1, 2])
