"""The memory manager of a job: one budget for all queries and all shards.

After each micro-batch the driver adds up what the shards report, and chooses the sizes of all windows as an
embedded engine does (`headrace.memory.choice`). A choice is one file in a folder beside the checkpoint, which
is a source of the job, as the control log is: every shard gets it in the next micro-batch, and a micro-batch
that runs again has it again. A new size holds from an instant that no shard has answered for yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from headrace import tuning
from headrace.engine import Shortage
from headrace.memory.budget import too_small
from headrace.memory.choice import Decision, Needs, decide
from headrace.memory.share import Adjustable, Key, merged
from headrace.runtimes.spark.driver.admission import FILE, FOLDER, JobMeasured, arrivals_in, needs_of
from headrace.runtimes.spark.driver.record import make_directory, remove_file, write_text
from headrace.runtimes.spark.driver.source_names import OWN, reader
from headrace.runtimes.spark.worker.budgeting import Choice, Chosen, Use, shard_name, uses_of
from headrace.time.timestamp import MIN_TIME

_KEPT: Final = 100
"""How many choices stay: a micro-batch that runs again needs the newest one."""

Report = Mapping[str, Any]
"""What a shard reports about its windows (`worker.budgeting.reported`)."""


def choices(spark: SparkSession, checkpoint: str) -> DataFrame:
    """The choices as a stream of texts; one file is one choice."""
    folder = f"{checkpoint}/{FOLDER}"
    make_directory(spark, folder)
    source: Any = reader(spark, f"{OWN}memory").format("text").option("wholetext", True)
    found: DataFrame = source.option("pathGlobFilter", "*.json").load(folder)
    return found


@dataclass
class JobBudget:
    """Keeps what all shards of a job hold within `budget` bytes, by changing windows within their bounds."""

    budget: int
    policy: Shortage
    checkpoint: str
    importance: Callable[[str], float] = field(default=lambda query: 1.0)
    """How much the quality of each query counts."""
    _shards: dict[int, dict[int, Report]] = field(default_factory=dict)
    """By host and shard, the newest report; a shard without rows and without a timer does not run."""

    def after(self, spark: SparkSession, batch: int, reports: Iterable[Mapping[str, Any]]) -> None:
        """Write the choice after a micro-batch, for the next one, if there is something to change.

        An error is raised if the shards hold more than the budget and may not spill.
        """
        choice = self.choose(batch, reports)
        if choice.values:
            folder = f"{self.checkpoint}/{FOLDER}"
            write_text(spark, folder, f"{batch}.json", choice.text())
            remove_file(spark, folder, f"{batch - _KEPT}.json")
        measured = self.measured().text()
        write_text(spark, f"{self.checkpoint}/{FOLDER}", FILE, measured, durable=False)

    def measured(self) -> JobMeasured:
        """What the shards have measured so far, for a query that wants to come."""
        _, _, needs = self._needs()
        return JobMeasured(
            self.budget, self.policy, needs, arrivals_in(each.values() for each in self._shards.values())
        )

    def choose(self, batch: int, reports: Iterable[Mapping[str, Any]]) -> Choice:
        """The sizes to change after a micro-batch, from the reports of its shards."""
        for each in reports:
            memory = each["memory"]
            if "needs" in memory:
                self._shards.setdefault(memory["host"], {})[each["shard"]] = {**memory, "now": each["now"]}
        hosts = self._shards.values()
        windows, grains, needs = self._needs()
        decision = decide(needs, self.budget)
        self._check(decision)
        keys, values = [*windows, *grains], (*decision.sizes, *decision.grains)
        sizes = [each.size for each in (*needs.windows, *needs.grains)]
        changed = {key: value for key, value, size in zip(keys, values, sizes, strict=True) if value != size}
        clocks = {
            shard_name(host, shard): report["now"]
            for host, shards in self._shards.items()
            for shard, report in shards.items()
        }
        return Choice(batch, tuple(_chosen(changed, hosts)), clocks)

    def _needs(self) -> tuple[list[Key], list[Key], Needs]:
        """The needs of all shards together, with the keys of windows and of granularities."""
        parts = [part for host, shards in self._shards.items() for part in _parts(host, shards)]
        windows, grains, needs = merged(parts)
        return (
            windows,
            grains,
            replace(
                needs,
                windows=tuple(map(self._weighted, windows, needs.windows)),
                grains=tuple(map(self._weighted, grains, needs.grains)),
            ),
        )

    def _weighted(self, key: Key, demand: Adjustable) -> Adjustable:
        """A window with the importance of its queries, which the shards do not know."""
        match key:
            case (_, tuple(uses)) if uses:
                queries = {query for query, _ in uses}
                return replace(demand, weight=sum(map(self.importance, queries)))
        return demand

    def _check(self, decision: Decision) -> None:
        """Raise an error if the state does not fit and may not spill."""
        reports = [shard for host in self._shards.values() for shard in host.values()]
        held = sum(shard["held"] for shard in reports)
        if self.policy == "fail" and held > tuning.current.budget_failure * self.budget:
            names = dict.fromkeys(name for shard in reports for name in shard["names"])
            raise too_small(held, self.budget, decision.forecast.least, list(names))


def _parts(host: int, shards: Mapping[int, Report]) -> Iterable[tuple[list[Key], Needs]]:
    """What the shards of a host need, with keys by which the same window has the same key in all of them.

    An operator may have another name in each shard, after queries have come and gone. Its queries and its
    place in them are the same.
    """
    for shard, report in shards.items():
        settings = report["settings"]
        keys: list[Key] = [
            (host, uses_of(settings[name])) if name in settings else (host, shard, name)
            for name in report["names"]
        ]
        yield keys, needs_of(report["needs"])


def _chosen(changed: Mapping[Key, int], hosts: Iterable[Mapping[int, Report]]) -> Iterable[Chosen]:
    """New values, each from the first instant that no shard has answered for.

    After a start, a host is left alone until all its shards have reported: one may have answered further.
    """
    for shards in hosts:
        reports = list(shards.values())
        found: dict[tuple[int, tuple[Use, ...]], list[int]] = {}
        for report in reports:
            for setting in report["settings"].values():
                found.setdefault((report["host"], uses_of(setting)), []).append(setting["earliest"])
        for window, earliest in found.items():
            if window in changed and len(earliest) == reports[0]["shards"]:
                (query, place), *_ = window[1]
                since = max(earliest)
                yield Chosen(query, place, None if since == MIN_TIME else since, changed[window])
