"""The page of benchmarks is made from their files: all numbers, the bounds, what was not measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import page

RUN = {
    "machine": {"system": "Linux 6", "processor": "A Processor", "cores": 2, "memory_gib": 24.0},
    "versions": {"python": "3.11.7", "headrace": "0.1", "bytewax": "0.21.1"},
}
PEERS = [
    {"name": "union.headrace.rows_per_s", "value": 25_000_000.0, "unit": "rows/s"},
    {"name": "union.bytewax.rows_per_s", "value": 2_000_000.0, "unit": "rows/s"},
    {"name": "union.vs_bytewax", "value": 12.5, "unit": "x", "floor": 10.0},
    {"name": "union.headrace.p99_ms", "value": 3.25, "unit": "ms"},
    {"name": "spark.silent.triggers_late", "value": 0.0, "unit": "triggers", "ceiling": 1.0},
]
NEXMARK = [
    {"name": "spark.q10.events_per_s", "value": 1234.0, "unit": "events/s"},
    {"name": "spark.q10.equal", "value": 1.0, "unit": ""},
    {"name": "spark.q2.events_per_s", "value": 4321.0, "unit": "events/s"},
    {"name": "spark.q2.equal", "value": 0.0, "unit": ""},
]


KAFKA = [{"name": "kafka.tumbling.vs_bytewax", "value": 9.5, "unit": "×", "floor": 10.0}]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, Path]:
    out, docs = tmp_path / "out", tmp_path / "docs"
    out.mkdir()
    docs.mkdir()
    for name, results in (("peers", PEERS), ("kafka", KAFKA), ("nexmark_spark", NEXMARK)):
        (out / f"{name}.json").write_text(json.dumps({**RUN, "results": results}))
    return out, docs


def test_the_page_has_the_numbers_and_their_bounds(written: tuple[Path, Path]) -> None:
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    out, docs = written
    assert page.main(out, docs) == 0
    text = (docs / "benchmarks.md").read_text()
    assert "| headrace | 25,000,000 |  |  | 3.25 |  |" in text
    assert "| `union.vs_bytewax` | 12.5 x | ≥ 10 | ok |" in text
    assert "| `spark.silent.triggers_late` | 0 triggers | ≤ 1 | ok |" in text
    assert text.index("| q2 |  | 4,321 | NO |") < text.index("| q10 |  | 1,234 | yes |")
    assert "| `kafka.tumbling.vs_bytewax` | 9.5 × | ≥ 10 | BELOW FLOOR |" in text
    assert text.index("## Compared with") < text.index("messages of 200 bytes") < text.index("| q2 |")
    assert "2 cores of A Processor, 24.0 GiB, Linux 6; python 3.11.7, headrace 0.1, bytewax 0.21.1." in text
    assert "`headrace bench engine`: not measured here." in text
    for picture in ("peers-rates.svg", "peers-latency.svg"):
        assert f"(images/{picture})" in text
        assert (docs / "images" / picture).exists()


def test_what_was_recorded_stays_when_it_is_not_measured_again(written: tuple[Path, Path]) -> None:
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    out, docs = written
    page.main(out, docs)
    (out / "peers.json").unlink()
    page.main(out, docs)
    assert "| `union.vs_bytewax` | 12.5 x | ≥ 10 | ok |" in (docs / "benchmarks.md").read_text()


def test_the_same_files_give_the_same_bytes(written: tuple[Path, Path]) -> None:
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    out, docs = written
    kept = []
    for _ in range(2):
        page.main(out, docs)
        kept.append({path.name: path.read_bytes() for path in docs.rglob("*.*") if path.is_file()})
    assert kept[0] == kept[1]


def test_the_page_in_the_docs_is_what_the_recorded_files_make(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plots extra is not installed")
    recorded = page.OUT.parent / page.RECORDED
    assert page.page(page.measured(recorded), tmp_path) == (page.DOCS / "benchmarks.md").read_text()
