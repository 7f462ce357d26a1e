"""`[memory]` in a pipeline file: the budget is held, shown, or failed in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import BudgetError, HeadraceError
from headrace.pipeline import parse
from headrace.runtimes.embedded import Progress, Runner

TEXT = """
[pipeline]
name = "small"
runtime = "embedded"

[streams.s]
source = {{ type = "poisson", rate = 10000, rows = 8000, keys = 100000 }}
schema = "key BIGINT, value DOUBLE, time TIMESTAMP"
time = {{ column = "time" }}
bounds = {{ disorder = 0 }}

[[queries]]
name = "q"
sql = "DSTREAM(SELECT key FROM s [RANGE MIN {least}, MAX 400 MILLISECONDS])"
sink = "out-{least}.jsonl"

[memory]
{memory}
"""


def run(root: Path, least: str, memory: str) -> tuple[Progress, list[Progress]]:
    told: list[Progress] = []
    pipeline = parse(TEXT.format(least=least, memory=memory), root=root)
    result = Runner(pipeline).run(on_progress=told.append, every=0.0)
    return result.progress, told


def test_a_budget_in_a_file_is_held_and_shown(tmp_path: Path) -> None:
    _, free = run(tmp_path, "20 MILLISECONDS", "")
    most = max(each.bytes for each in free)
    end, told = run(tmp_path, "10 MILLISECONDS", f"budget = {most // 3}")
    assert end.budget == most // 3
    assert max(each.bytes for each in told) <= 1.05 * most // 3
    (quality,) = end.quality.values()
    assert quality.least == 10_000
    assert quality.most == 400_000
    assert quality.changes > 0


def test_what_does_not_fit_fails_or_spills(tmp_path: Path) -> None:
    _, free = run(tmp_path, "300 MILLISECONDS", "")
    least = max(each.bytes for each in free) // 4
    with pytest.raises(BudgetError, match="HR-M001"):
        run(tmp_path, "320 MILLISECONDS", f"budget = {least}")
    end, told = run(tmp_path, "340 MILLISECONDS", f'budget = {least}\npolicy = "spill"\nspill = "disk"')
    assert end.state == "finished"
    assert max(each.bytes for each in told) <= 1.1 * least
    assert (tmp_path / "disk").is_dir()


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ('budget = "much"', "HR-M002"),
        ('budget = 5\npolicy = "pray"', "HR-F004"),
        ("bugdet = 5", "did you mean budget"),
    ],
)
def test_mistakes_are_named_with_their_line(memory: str, words: str) -> None:
    with pytest.raises(HeadraceError, match=words) as caught:
        parse(TEXT.format(least="100 MILLISECONDS", memory=memory))
    place: Any = caught.value.place
    assert "line" in place
