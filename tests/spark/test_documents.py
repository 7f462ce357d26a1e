"""Every python block of the pages on Spark runs, in the session that all Spark tests share.

So does every block of other pages that is marked `python spark`. The blocks of a page that are marked `python
spark page` are one program. The pipelines of `pipelines.md` give the same on both runtimes.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline
from headrace.runtimes.embedded import Runner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((ROOT / "docs" / "spark").glob("*.md"))
MARKED = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGE = "python spark page"


def blocks(page: Path, text: str) -> list[list[re.Match[str]]]:
    """The programs of a page, each of one block or several."""
    found = list(re.finditer(r"^```(python.*)\n((?:.*\n)*?)```$", text, re.M))
    together = [match for match in found if match[1] == PAGE]
    alone = "python" if page in PAGES else "python spark"
    return [[match] for match in found if match[1] == alone] + ([together] if together else [])


def program(text: str, parts: list[re.Match[str]]) -> str:
    """Blocks as one text, each at its own line, so that a traceback names the page's lines."""
    lines: list[str] = []
    for match in parts:
        begin = text.count("\n", 0, match.start()) + 1
        lines += [""] * (begin - len(lines)) + match[2].splitlines()
    return "\n".join(lines)


BLOCKS = [
    pytest.param(page, program(text, parts), id=f"{page.name}:{text.count(chr(10), 0, parts[0].start()) + 2}")
    for page in (*PAGES, *MARKED)
    for text in [page.read_text()]
    for parts in blocks(page, text)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("page", "source"), BLOCKS)
def test_example_runs(
    spark: SparkSession, page: Path, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(source, str(page), "exec", dont_inherit=True), {"__name__": "__example__"})


PIPELINES = ROOT / "docs" / "pipelines.md"
EXAMPLES = [
    pytest.param(program(text, [match]), id=f"{PIPELINES.name}:{text.count(chr(10), 0, match.start()) + 2}")
    for text in [PIPELINES.read_text()]
    for match in re.finditer(r"^```(python)\n((?:.*\n)*?)```$", text, re.M)
    if "Runner(" in match[2]
]
EMBEDDED_ONLY = {"record": "HR-F017"}
"""What the page says is not on Spark, by the key of `[pipeline]`, with the code of the refusal."""


@dataclass
class Started:
    """A pipeline that an example ran, and a copy of the directory it found."""

    pipeline: Pipeline
    copy: Path


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Started]:
    """The pipelines that are run embedded, in `here`, each with a copy of what was there before."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found: list[Started] = []
    run = Runner.run

    def copied(self: Runner, *args: Any, **more: Any) -> Any:
        copy = tmp_path / f"there{len(found)}"
        shutil.copytree(tmp_path / "here", copy)
        found.append(Started(self.pipeline, copy))
        return run(self, *args, **more)

    monkeypatch.setattr(Runner, "run", copied)
    return found


@pytest.mark.parametrize("source", EXAMPLES)
def test_a_pipeline_of_the_page_gives_the_same_on_spark(
    spark: SparkSession, source: str, started: list[Started]
) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    exec(compile(source, str(PIPELINES), "exec", dont_inherit=True), {"__name__": "__example__"})
    assert started
    for each in started:
        there = replace(each.pipeline, root=each.copy)
        keys = each.pipeline.spec.pipeline.model_dump(exclude_none=True)
        code = next((code for key, code in EMBEDDED_ONLY.items() if key in keys), None)
        if code is not None:
            with pytest.raises(HeadraceError, match=code):
                SparkRunner(there, spark).run()
            continue
        assert SparkRunner(there, spark).run().state == "finished"
        outputs = [
            sink.path for q in there.queries for sink in (q.spec.sink, q.spec.late, q.spec.rejected) if sink
        ]
        assert outputs
        for output in outputs:
            given = sorted(each.copy.joinpath(output).glob("batch=*/part-*"))
            lines = [line for part in given for line in part.read_text().splitlines()]
            assert sorted(lines) == sorted(Path(output).read_text().splitlines()), output


def test_the_page_has_pipelines_to_compare() -> None:
    assert len(EXAMPLES) >= 2
