"""Cuts a mechanism out of the package and shows that the test which the table names for it fails.

`python -m tests.papers.cut` does it for every row of `CUTS`, `python -m tests.papers.cut 85` for some. No
file is changed: pytest runs in a process that imports the module without it (`-p tests.papers.cut`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[2]
CUT = "HEADRACE_CUT"
"""The number of the cut, in the process of the test."""


@dataclass(frozen=True)
class Cut:
    """A row of the table, its mechanism as text, what is there without it, and the test that must fail."""

    row: int
    file: str
    mechanism: str
    without: str
    test: str

    @property
    def module(self) -> str:
        """The module that the file is."""
        return "headrace." + self.file.removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """The file without the mechanism."""
        text = (ROOT / "headrace" / self.file).read_text()
        if text.count(self.mechanism) != 1:
            raise ValueError(f"row {self.row}: {self.mechanism!r} is not once in {self.file}")
        return text.replace(self.mechanism, self.without)


CUTS = (
    Cut(
        9,
        "scheduling/shares.py",
        "        return min(near, key=",
        "        return min(working) if near else min(near, key=",
        "scheduling/test_shares.py::test_each_component_gets_its_share_under_backlog_and_none_starves",
    ),
    Cut(
        13,
        "graph/source.py",
        "return self.policy.demand and self._make(now)",
        "return False",
        "engine/test_kinds.py::test_on_demand_an_internal_row_never_waits_for_a_silent_stream",
    ),
    Cut(
        35,
        "operators/early_results.py",
        "        self._answer_now(sessions)\n        return self._passed(punctuation)",
        "        return self._passed(punctuation)",
        "engine/test_early_results.py::test_a_closed_auction_is_answered_at_once",
    ),
    Cut(
        49,
        "operators/state/join_side.py",
        "        if gone:\n            self._drop(gone)\n        if not",
        "        if not",
        "engine/test_quality.py::test_a_smaller_window_frees_the_state_behind_it",
    ),
    Cut(
        78,
        "time/bounds.py",
        "np.isin(skew.target, list(self.fifo))",
        "np.isin(skew.target, [])",
        "time/test_heartbeat.py::test_a_channel_that_keeps_the_order_does_not_wait_for_its_latency",
    ),
    Cut(
        85,
        "time/heartbeat.py",
        "declared.closed() if close else declared",
        "declared",
        "time/test_skew.py::test_section_3_2_three_sources_give_an_indirect_guarantee",
    ),
    Cut(
        100,
        "time/estimation.py",
        "steps = adaptivity.window // tick if in_time else adaptivity.window",
        "steps = 1 << 30",
        "time/test_estimation.py::test_a_window_in_time_forgets_after_that_time_however_many_rows_come",
    ),
    Cut(
        101,
        "time/estimation.py",
        "        if self.adjusting is None:\n            return -1.0",
        "        if True:\n            return -1.0",
        "time/test_estimation.py::test_adaptive_adaptivity_waits_longer_when_exceeded_and_less_when_falling",
    ),
    Cut(
        103,
        "graph/levels.py",
        "node.operator.beyond = _least_promised(node.label) if node.label else None",
        "node.operator.beyond = None",
        "engine/test_levels.py::test_query_level_holds_o1_back_until_all_streams_have_come",
    ),
    Cut(
        105,
        "graph/levels.py",
        "if factor <= (1 / margin if (origin.id, node.id) in known else margin):",
        "if factor <= 1:",
        "engine/test_levels.py::test_a_label_is_stable_where_the_selectivity_is_about_one",
    ),
    Cut(
        118,
        "engine/scheduling.py",
        "        self.table.ask(strategies, breaks)",
        "        self.table.ask({}, breaks)",
        "scheduling/test_table.py::test_a_query_brings_its_strategy_and_its_break_nodes",
    ),
    Cut(
        120,
        "scheduling/ranking.py",
        "return node.id in standing.charts.ends",
        "return False",
        "scheduling/test_chain.py::test_break_nodes_follow_the_measured_selectivities",
    ),
    Cut(
        137,
        "operators/early_results.py",
        "self.progress is not None and self.label is no_label and self.progress.news",
        "False",
        "engine/test_by_source.py::test_a_group_is_answered_as_soon_as_its_source_is_complete",
    ),
    Cut(
        138,
        "scheduling/ranking.py",
        "else (since + node.deadline, -node.place)",
        "else (since, -node.place)",
        "scheduling/test_deadlines.py::test_rows_run_in_the_order_of_their_deadlines",
    ),
)


class Without(importlib.abc.MetaPathFinder):
    """Imports one module without a mechanism, and leaves all others to Python."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._cut.module:
            return None
        loader = Loader(self._cut)
        return importlib.machinery.ModuleSpec(fullname, loader, origin=loader.path)


class Loader(importlib.machinery.SourceFileLoader):
    """Compiles the file without the mechanism; what is compiled is not kept."""

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.module, str(ROOT / "headrace" / cut.file))
        self._cut = cut

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._cut.source(), self.path, "exec")


def fails(cut: Cut) -> bool:
    """Whether the test fails without the mechanism."""
    environment = {**os.environ, CUT: str(CUTS.index(cut)), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.papers.cut", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*command, "-q", "-x", f"tests/{cut.test}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):  # neither passed nor failed: it did not run
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode == 1


def main(rows: Sequence[str]) -> int:
    """Cut each; 1 if a test does not notice."""
    wanted = {int(row) for row in rows}
    unnoticed = 0
    for cut in CUTS:
        if wanted and cut.row not in wanted:
            continue
        failed = fails(cut)
        unnoticed += not failed
        print(
            f"row {cut.row}: without {cut.file}: {cut.test} {'fails' if failed else 'STILL PASSES'}",
            flush=True,
        )
    return int(unnoticed > 0)


if os.environ.get(CUT) and __name__ != "__main__":
    sys.meta_path.insert(0, Without(CUTS[int(os.environ[CUT])]))

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
