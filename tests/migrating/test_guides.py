"""The programs of the migration guides: the other system's, in its own environment, and ours give the same.

`make .venvs/bytewax/.installed` and its like install the others. Blocks of ours that need no broker run with
all documentation (tests/test_repository.py).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.kafka.broker import Broker, CannotStart, jars
from headrace.errors import SparkError

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "migrating"
BLOCK = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.M | re.S)
BIDS = (("lamp", 5), ("desk", 20), ("lamp", 50), ("lamp", 70), ("desk", 95), ("lamp", 150), ("desk", 151))


def pairs(name: str) -> list[tuple[str, str]]:
    """The programs of a guide: theirs and the one of ours that follows it."""
    blocks = BLOCK.findall((GUIDES / f"{name}.md").read_text())
    theirs = [text for info, text in blocks if "peer" in info.split()]
    ours = [text for info, text in blocks if "peer" not in info.split()]
    return list(zip(theirs, ours, strict=True))


def python_of(name: str) -> Path:
    """The Python of a system, or a skipped test."""
    found = ROOT / ".venvs" / name / "bin" / "python"
    if not found.exists():
        pytest.skip(f"{name} is not installed: make .venvs/{name}/.installed")
    return found


def found_by(python: Path, text: str, folder: Path, **env: str) -> Any:
    """What a program has in `found` at its end."""
    folder.mkdir()
    (folder / "program.py").write_text(text + "\nimport json\nprint('found', json.dumps(found))\n")
    command = [str(python), "program.py"]
    ran = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.rpartition("found ")[2])


def test_every_guide_has_programs_of_both() -> None:
    assert {path.stem: len(pairs(path.stem)) for path in GUIDES.glob("*.md")} == {
        "bytewax": 2,
        "flink": 1,
        "quix": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bytewax", "flink"])
def test_both_programs_give_the_same(name: str, tmp_path: Path) -> None:
    python = python_of(name)
    if name == "flink":
        from headrace.runtimes.spark.driver import java

        try:
            java.ensure()
        except SparkError as error:
            pytest.skip(str(error))
    for number, (theirs, ours) in enumerate(pairs(name)):
        there = found_by(python, theirs, tmp_path / f"theirs{number}")
        here = found_by(Path(sys.executable), ours, tmp_path / f"ours{number}", PYTHONPATH=str(ROOT))
        assert here == there
        assert here


@pytest.fixture
def bids(tmp_path: Path) -> Iterator[str]:
    """The address of a broker with the bids."""
    kafka = pytest.importorskip("confluent_kafka", reason="headrace[kafka] is not installed")
    admin = pytest.importorskip("confluent_kafka.admin")
    try:
        broker = Broker(jars(), tmp_path / "broker")
        broker.begin()
    except CannotStart as error:
        pytest.skip(str(error))
    try:
        settings = {"bootstrap.servers": broker.address}
        client = admin.AdminClient(settings)
        for made in client.create_topics([admin.NewTopic("bids", 1)]).values():
            made.result(60)
        producer = kafka.Producer(settings)
        for item, second in BIDS:
            at = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
            producer.produce("bids", json.dumps({"item": item, "at": at}), key=item)
        producer.flush()
        yield broker.address
    finally:
        broker.kill()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quix_gives_the_windows_that_it_closes(bids: str, tmp_path: Path) -> None:
    """All but the last of each item, which no later message of that item closes."""
    python = python_of("quix")
    ((theirs, ours),) = pairs("quix")
    there = found_by(python, theirs, tmp_path / "theirs", BROKERS=bids)
    here = found_by(Path(sys.executable), ours, tmp_path / "ours", BROKERS=bids, PYTHONPATH=str(ROOT))
    assert here == [["desk", 1], ["desk", 1], ["desk", 1], ["lamp", 1], ["lamp", 1], ["lamp", 2]]
    assert there == [["desk", 1], ["desk", 1], ["lamp", 1], ["lamp", 2]]
