"""The pipeline file changes between two runs: the second goes on with what the first knew."""

from __future__ import annotations

import json
import shutil
import zlib
from collections import Counter
from pathlib import Path

import pytest

from headrace.cli.app import app
from headrace.cli.check import describe
from headrace.control import AddQuery, RemoveQuery, submit
from headrace.engine import Snapshot
from headrace.engine.snapshot import STRUCTURE
from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.evolution_cases import BEST, DIFFERENT, KEPT, NEW, PIPELINE, REFUSED, Change, write_inputs

STEPS = 6
"""Half of the input."""
Rows = Counter[str]


def start(root: Path, text: str, skip: dict[str, int] | None = None) -> Path:
    """A pipeline in a new directory."""
    root.mkdir()
    write_inputs(root, skip)
    (root / "p.toml").write_text(text)
    return root


def run(root: Path, steps: int | None = None, change: Change | None = None) -> Runner:
    """Run the pipeline in a directory; returns the runner after its end."""
    reset, reload = (change.reset, change.reload) if change else ((), ())
    runner = Runner(load(root / "p.toml"), reset=reset, reload=reload)
    runner.run(max_steps=steps)
    return runner


def rows(root: Path, name: str) -> Rows:
    """The rows of an output."""
    path = root / f"{name}.jsonl"
    return Counter(path.read_text().splitlines()) if path.exists() else Counter()


def tree(root: Path) -> dict[str, bytes]:
    """All files below a directory."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "LOCK")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def changed(root: Path, change: Change) -> None:
    """Change the pipeline in a directory."""
    (root / "p.toml").write_text(change.text((root / "p.toml").read_text()))
    change.files(root)


def queries(text: str) -> list[str]:
    return [line.split('"')[1] for line in text.split("[[queries]]", 1)[1].splitlines() if "name = " in line]


@pytest.mark.parametrize("name", [*KEPT, *DIFFERENT])
def test_a_changed_pipeline_goes_on(tmp_path: Path, name: str) -> None:
    change = {**KEPT, **DIFFERENT}[name]
    here = start(tmp_path / "here", PIPELINE)
    stopped = run(here, STEPS).progress()
    before = {query: rows(here, query) for query in queries(PIPELINE)}
    assert all(before.values())
    changed(here, change)
    assert run(here, change=change).progress().state == "finished"

    whole = start(tmp_path / "whole", PIPELINE)
    changed(whole, change)
    run(whole, STEPS)
    until = {query: rows(whole, query) for query in [*queries(PIPELINE), "moved"]}
    run(whole)
    read = {name: stream.rows_in for name, stream in stopped.streams.items()}
    rest = start(tmp_path / "rest", PIPELINE, read)
    changed(rest, change)
    run(rest)
    text = change.text(PIPELINE)
    for query in dict.fromkeys([*queries(PIPELINE), *queries(text)]):
        expected = {
            "whole": lambda query: rows(whole, query),
            "rest": lambda query: before[query] + (rows(whole, query) - until[query]),
            "begun": lambda query: rows(rest, query),
            "reset": lambda query: before[query] + rows(rest, query),
            "moved": lambda query: before[query],
            "gone": lambda query: before[query],
        }[change.expect.get(query, "whole")](query)
        assert rows(here, query) == expected, query
        assert expected
    if "moved" in change.expect.values():
        assert rows(here, "moved") == rows(whole, "moved") - until["moved"] != Counter()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_go_on_is_refused_and_changes_nothing(tmp_path: Path, name: str) -> None:
    change = REFUSED[name]
    here, whole = start(tmp_path / "here", PIPELINE), start(tmp_path / "whole", PIPELINE)
    run(whole)
    run(here, STEPS)
    files = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    changed(here, change)
    before = tree(here)
    with pytest.raises(HeadraceError) as caught:
        run(here, change=change)
    assert caught.value.code == change.refused
    assert all(each in str(caught.value) for each in change.said), caught.value
    assert tree(here) == before
    for each, content in files.items():
        (here / each).write_bytes(content)
    run(here)
    for query in queries(PIPELINE):
        assert rows(here, query) == rows(whole, query)


def test_a_restart_says_what_it_keeps(tmp_path: Path) -> None:
    here = start(tmp_path / "here", PIPELINE)
    run(here, STEPS)
    text = (here / "p.toml").read_text().replace('name = "hot"', 'name = "cold"').replace('"hot.j', '"cold.j')
    (here / "p.toml").write_text(text)
    before = tree(here)
    assert "the next start keeps best, pairs, named; begins cold; frees hot" in describe(
        load(here / "p.toml")
    )
    assert tree(here) == before
    messages = run(here).progress().messages
    assert any("keeps best, pairs, named; begins cold; frees hot" in each for each in messages)


def test_check_says_that_a_restart_would_be_refused(tmp_path: Path) -> None:
    here = start(tmp_path / "here", PIPELINE)
    assert "next start" not in describe(load(here / "p.toml"))
    run(here, STEPS)
    changed(here, REFUSED["window"])
    before = tree(here)
    assert "the next start is refused: [HR-G022]" in describe(load(here / "p.toml"))
    assert tree(here) == before


def test_the_command_resets_and_reloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = start(tmp_path / "here", PIPELINE)
    run(here, STEPS)
    changed(here, DIFFERENT["table, reloaded"])
    path = str(here / "p.toml")
    with pytest.raises(SystemExit) as refused:
        app(["run", path, "--quiet"])
    assert refused.value.code == 1
    assert "--reload sellers" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        app(["run", path, "--quiet", "--reload", "sellers", "--reset", "best", "--reset", "hot"])
    assert ended.value.code == 0
    assert "keeps pairs, named; resets hot, best" in capsys.readouterr().out


def test_changes_follow_each_other(tmp_path: Path) -> None:
    """A query that began at one restart goes on at the next, in a generation of its own."""
    here = start(tmp_path / "here", PIPELINE)
    run(here, 4)
    (here / "p.toml").write_text(PIPELINE + NEW)
    first = run(here, 3).progress()
    body = json.loads(max((here / "state").glob("commit-*[0-9]")).read_text().split("\n", 1)[1])
    assert body["since"]["newcomer"] < 0 == body["since"]["best"]
    twin = tmp_path / "twin"
    shutil.copytree(here, twin)
    run(twin)
    latency = PIPELINE.replace('disorder = "500 ms"', 'disorder = "500 ms", latency = "1 hour"')
    (here / "p.toml").write_text(latency + NEW)
    run(here)
    whole = start(tmp_path / "whole", PIPELINE)
    run(whole)
    assert first.state == "stopped"
    for query in queries(PIPELINE):
        assert rows(here, query) == rows(twin, query) == rows(whole, query)
    assert rows(here, "newcomer") == rows(twin, "newcomer") != Counter()


def test_queries_that_commands_added_and_removed_survive_a_changed_file(tmp_path: Path) -> None:
    """A query that was added live is in a generation of its own; the file changes, and it goes on."""
    here = start(tmp_path / "here", PIPELINE)
    run(here, 3)
    submit(load(here / "p.toml"), AddQuery("twin", BEST, {"path": "twin.jsonl", "time": "ts"}))
    submit(load(here / "p.toml"), RemoveQuery("hot"))
    run(here, 3)
    gone, twin = rows(here, "hot"), tmp_path / "twin"
    shutil.copytree(here, twin)
    run(twin)
    changed(here, KEPT["latency"])
    (here / "p.toml").write_text((here / "p.toml").read_text() + NEW)
    messages = run(here).progress().messages
    assert any("keeps best, pairs, named, twin; begins newcomer" in each for each in messages), messages
    whole = start(tmp_path / "whole", PIPELINE)
    run(whole)
    assert rows(here, "hot") == gone
    assert rows(here, "twin") == rows(twin, "twin") != rows(here, "best")
    assert rows(here, "newcomer")
    for query in ("best", "pairs", "named"):
        assert rows(here, query) == rows(twin, query) == rows(whole, query)


# A checkpoint that an earlier version of the code wrote is kept, with its pipeline and its outputs.

KEPT_CHECKPOINT = Path(__file__).parents[2] / "data" / "checkpoints" / "embedded-3"


def test_a_kept_checkpoint_is_opened_and_goes_on(tmp_path: Path) -> None:
    """`python -m tests.runtimes.embedded.test_evolution` writes one, after a change of the format."""
    here = tmp_path / "here"
    shutil.copytree(KEPT_CHECKPOINT, here)
    write_inputs(here)
    assert "the next start keeps hot, best, pairs, named" in describe(load(here / "p.toml"))
    run(here)
    whole = start(tmp_path / "whole", PIPELINE)
    run(whole)
    for query in queries(PIPELINE):
        assert rows(here, query) == rows(whole, query)


def as_format_2(state: Path) -> None:
    """Rewrite a checkpoint as the version before wrote it: without what the state is the state of."""
    for record in state.glob("commit-*[0-9]"):
        body = json.loads(record.read_text().split("\n", 1)[1])
        for stored in body["states"]:
            snapshots = Snapshot.decode_all((state / stored[0]).read_bytes())
            for snapshot in snapshots:
                snapshot.chunks.pop(STRUCTURE, None)
            data = b"".join(snapshot.encode() for snapshot in snapshots)
            (state / stored[0]).write_bytes(data)
            stored[1:] = [len(data), zlib.crc32(data)]
        old = {key: value for key, value in body.items() if key not in ("since", "clock")}
        text = json.dumps(old | {"format": 2}).encode()
        record.write_bytes(b"%08x\n" % zlib.crc32(text) + text)


def test_a_checkpoint_of_format_2_goes_on_with_the_same_pipeline_and_can_change_then(tmp_path: Path) -> None:
    here, whole = start(tmp_path / "here", PIPELINE), start(tmp_path / "whole", PIPELINE)
    run(whole)
    run(here, 3)
    as_format_2(here / "state")
    change = DIFFERENT["query removed"]
    changed(here, change)
    with pytest.raises(HeadraceError, match="HR-D005"):
        run(here)
    (here / "p.toml").write_text(PIPELINE)
    run(here, 2)
    changed(here, change)
    run(here)
    for query in ("best", "pairs", "named"):
        assert rows(here, query) == rows(whole, query)


def _keep_a_checkpoint() -> None:
    start(KEPT_CHECKPOINT, PIPELINE.replace("[pipeline]", "[pipeline]\nevery_rows = 20"))
    run(KEPT_CHECKPOINT, 3)
    for name in ("bids.jsonl", "auctions.jsonl", "sellers.csv", "state/LOCK"):
        (KEPT_CHECKPOINT / name).unlink()


if __name__ == "__main__":
    _keep_a_checkpoint()
