"""Torn files, full disks, other pipelines: the run goes on and is right, or says what to do."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import resource
import shutil
import signal
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from headrace.engine import Engine
from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.runtimes.embedded.checkpoint import Store
from headrace.state.part import decode, encode
from tests.faults.killing import CONTEXT
from tests.runtimes.embedded.pipelines import PIPELINES, bags, joined, sliding


def whole_run(tmp_path: Path, name: str, rows: int) -> dict[str, list[Any]]:
    root = tmp_path / "whole"
    root.mkdir()
    Runner(load(PIPELINES[name](root, rows=rows))).run()
    return bags(root)


def newest(root: Path, pattern: str) -> Path:
    return max((root / "state").glob(pattern))


@pytest.mark.parametrize("pattern", ["commit-*", "state-*"])
@pytest.mark.parametrize("name", ["sliding", "joined"])
def test_a_torn_file_costs_one_checkpoint_and_no_row(name: str, pattern: str, tmp_path: Path) -> None:
    expected = whole_run(tmp_path, name, 600)
    pipeline = PIPELINES[name](tmp_path, rows=600)
    Runner(load(pipeline)).run(max_steps=6)
    torn = newest(tmp_path, pattern)
    torn.write_bytes(torn.read_bytes()[:-7])
    result = Runner(load(pipeline)).run()
    assert result.state == "finished"
    assert any("incomplete" in message for message in result.progress.messages)
    assert bags(tmp_path) == expected


def test_when_no_checkpoint_is_whole_the_error_says_what_to_do(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=600)
    Runner(load(pipeline)).run(max_steps=6)
    for path in (tmp_path / "state").glob("commit-*"):
        path.write_bytes(b"\0" * 100)
    with pytest.raises(HeadraceError, match="HR-D002") as error:
        Runner(load(pipeline)).run()
    assert "start over" in error.value.hint


def test_any_flipped_byte_is_noticed(tmp_path: Path) -> None:
    expected = whole_run(tmp_path, "sliding", 300)
    pipeline = sliding(tmp_path, rows=300)
    Runner(load(pipeline)).run(max_steps=4)
    rng = np.random.default_rng(3)
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "state", kept)
    saved = {p.name: p.read_bytes() for p in tmp_path.glob("*.jsonl")}
    for _ in range(12):
        for name, data in saved.items():
            (tmp_path / name).write_bytes(data)
        shutil.rmtree(tmp_path / "state")
        shutil.copytree(kept, tmp_path / "state")
        victim = newest(tmp_path, str(rng.choice(["commit-*", "state-*"])))
        data = bytearray(victim.read_bytes())
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        victim.write_bytes(data)
        Runner(load(pipeline)).run()
        assert bags(tmp_path) == expected


def _limited(pipeline: str, size: int, answer: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        Runner(load(pipeline)).run()
        answer.put("no error")
    except HeadraceError as error:
        answer.put(f"{error.code} {error.hint}")


@pytest.mark.parametrize("name", PIPELINES)
def test_a_full_disk_stops_with_words_and_the_next_run_goes_on(name: str, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: writes of outputs and states fail midway."""
    expected = whole_run(tmp_path, name, 600)
    pipeline = PIPELINES[name](tmp_path, rows=600)
    said = set()
    for size in (3_000, 6_000, 12_000, 20_000, 30_000):
        answer: multiprocessing.Queue[str] = CONTEXT.Queue()
        process = CONTEXT.Process(target=_limited, args=(str(pipeline), size, answer))
        process.start()
        said.add(answer.get(timeout=120))
        process.join()
    assert any("free some space" in each for each in said), said
    assert all(each == "no error" or "free some space" in each for each in said), said
    Runner(load(pipeline)).run()
    assert bags(tmp_path) == expected


def test_a_changed_query_does_not_go_on_from_the_old_state(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    Runner(load(pipeline)).run(max_steps=2)
    pipeline.write_text(pipeline.read_text().replace("max(price)", "min(price)"))
    with pytest.raises(HeadraceError, match="HR-G022") as error:
        Runner(load(pipeline)).run()
    assert "aggregate min(price)" in str(error.value)
    assert "--reset hot" in str(error.value)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    first = Runner(load(pipeline))
    assert first._store is not None
    first._store.open()
    with pytest.raises(HeadraceError, match="HR-D001"):
        Runner(load(pipeline)).run()
    first._store.close()


def test_an_output_that_is_there_already_is_not_overwritten(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    (tmp_path / "hot.jsonl").write_text("precious\n")
    with pytest.raises(HeadraceError, match="HR-C010"):
        Runner(load(pipeline)).run()
    assert (tmp_path / "hot.jsonl").read_text() == "precious\n"


def test_an_output_that_was_cut_is_noticed(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=900)
    Runner(load(pipeline)).run(max_steps=10)
    (tmp_path / "hot.jsonl").write_text("")
    with pytest.raises(HeadraceError, match="HR-C011"):
        Runner(load(pipeline)).run()


def test_an_input_that_is_gone_or_shorter_is_noticed(tmp_path: Path) -> None:
    pipeline = joined(tmp_path, rows=600)
    Runner(load(pipeline)).run(max_steps=4)
    (tmp_path / "orders.csv").write_text("item,at\n")
    with pytest.raises(HeadraceError, match="HR-C002"):
        Runner(load(pipeline)).run()


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    Runner(load(pipeline)).run()
    before = bags(tmp_path)
    result = Runner(load(pipeline)).run()
    assert result.state == "finished"
    assert bags(tmp_path) == before


def test_chains_of_states_stay_short(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=6_000)
    Runner(load(pipeline)).run()
    assert len(list((tmp_path / "state").iterdir())) < 80


def test_without_a_checkpoint_a_second_run_overwrites_nothing_unless_told_to(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    pipeline.write_text(pipeline.read_text().replace('checkpoint = "state"', ""))
    Runner(load(pipeline)).run()
    before = bags(tmp_path)
    with pytest.raises(HeadraceError, match="HR-C010") as error:
        Runner(load(pipeline)).run()
    assert 'existing = "replace"' in error.value.hint
    assert bags(tmp_path) == before
    replacing = pipeline.read_text().replace(
        '{ path = "hot.jsonl"', '{ path = "hot.jsonl", existing = "replace"'
    )
    for name in ("late", "rejected"):
        replacing = replacing.replace(f'"{name}.jsonl"', f'{{ path = "{name}.jsonl", existing = "replace" }}')
    pipeline.write_text(replacing)
    Runner(load(pipeline)).run()
    assert bags(tmp_path) == before


def test_what_counts_at_the_first_start_only_may_change_later(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=900)
    Runner(load(pipeline)).run(max_steps=10)
    text = pipeline.read_text().replace('{ path = "hot.jsonl"', '{ path = "hot.jsonl", existing = "replace"')
    pipeline.write_text(text)
    assert Runner(load(pipeline)).run().state == "finished"
    (tmp_path / "plain").mkdir()
    Runner(load(sliding(tmp_path / "plain", rows=900))).run()
    assert bags(tmp_path) == bags(tmp_path / "plain")


class Passenger:
    """What runs a command when a pickle of it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("key", ["punctuations", "spoken"])
def test_07_a_forged_checkpoint_runs_no_code(tmp_path: Path, key: str) -> None:
    """Its checksums are right: whoever can write it can compute them."""
    pipeline = sliding(tmp_path, rows=300)
    Runner(load(pipeline)).run(max_steps=3)
    store = Store(tmp_path / "state")
    store.open()
    (newest, *_) = store.candidates()
    chain = store.snapshots(newest)
    evil = np.frombuffer(pickle.dumps(Passenger(tmp_path / "ran")), np.uint8)
    chunk = {**decode(chain[-1].chunks["source/bids"]), key: evil}
    forged = replace(chain[-1], since=None, chunks={**chain[-1].chunks, "source/bids": encode(chunk)})
    with mock.patch.object(Store, "_next_state", return_value=((), [forged])):
        store.commit(Engine(), newest.body)
    store.close()
    with pytest.raises(HeadraceError, match="HR-G020"):
        Runner(load(pipeline)).run()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("version", [1, 99])
def test_a_checkpoint_of_another_format_is_refused_in_words(tmp_path: Path, version: int) -> None:
    """Of a version before, and of one that is still to come."""
    pipeline = sliding(tmp_path, rows=300)
    Runner(load(pipeline)).run(max_steps=3)
    record = newest(tmp_path, "commit-*")
    text = json.dumps({**json.loads(record.read_bytes().partition(b"\n")[2]), "format": version}).encode()
    record.write_bytes(b"%08x\n" % zlib.crc32(text) + text)
    with pytest.raises(HeadraceError, match="HR-D003") as error:
        Runner(load(pipeline)).run()
    assert f"has format {version}; this version of Headrace reads 3" in error.value.message
    assert "start over" in error.value.hint
