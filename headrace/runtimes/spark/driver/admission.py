"""Whether a query fits into the budget of a running job: what its shards have measured, as JSON data.

The driver writes it after each micro-batch, beside the choices of sizes. Whoever adds a query compares: the
program of the job, or another process that writes to the control log. Shards take commands from the log as
they are, so a query that does not fit is refused before its command is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from headrace.engine import Shortage
from headrace.memory.admission import Measured, check_fits
from headrace.memory.choice import Cohort, Demand, GrainDemand, Needs
from headrace.memory.flows import Arrivals
from headrace.plan.show import in_units
from headrace.sql import Query

FOLDER: Final = "headrace-memory"
"""The folder of the memory manager, beside the checkpoint; Spark does not read files in `_…`."""
FILE: Final = "measured"
"""What the shards measured last; the choices, which Spark reads, are `*.json`."""


@dataclass(frozen=True)
class JobMeasured:
    """The budget of a job, and what all its shards measured."""

    budget: int
    policy: Shortage
    needs: Needs
    arrivals: Mapping[str, Sequence[Arrivals]]

    def check(self, name: str, query: Query) -> None:
        """Raise an error if a query would not fit (HR-M004)."""
        if self.policy == "fail":
            known = [each.bytes for each in (*self.needs.windows, *self.needs.grains) if each.bytes]
            measured = Measured(self.needs, self.arrivals, max(known, default=None))
            check_fits(name, query.plan, measured, self.budget, in_units(query.ticks_per_second))

    def text(self) -> str:
        """As JSON."""
        arrivals = {name: [each.state() for each in several] for name, several in self.arrivals.items()}
        plain = {"budget": self.budget, "policy": self.policy, "needs": asdict(self.needs)}
        return json.dumps(plain | {"arrivals": arrivals})

    @staticmethod
    def of(text: str) -> JobMeasured:
        """What `text` wrote."""
        plain = json.loads(text)
        arrivals = {name: [Arrivals.of(each) for each in found] for name, found in plain["arrivals"].items()}
        return JobMeasured(plain["budget"], plain["policy"], needs_of(plain["needs"]), arrivals)


def check_added(checkpoint: Path, name: str, query: Query) -> None:
    """Raise an error if a query does not fit beside those of the job that runs on a checkpoint."""
    try:
        text = (checkpoint / FOLDER / FILE).read_text()
    except OSError:
        return
    JobMeasured.of(text).check(name, query)


def arrivals_in(hosts: Iterable[Iterable[Mapping[str, Any]]]) -> dict[str, list[Arrivals]]:
    """By stream, what came to the shards of the host that gets most of it; each host gets its own copy."""
    found: dict[str, list[Arrivals]] = {}
    for reports in hosts:
        here: dict[str, list[Arrivals]] = {}
        for report in reports:
            for name, state in report["arrivals"].items():
                here.setdefault(name, []).append(Arrivals.of(state))
        for name, several in here.items():
            if sum(each.rows for each in several) > sum(each.rows for each in found.get(name, ())):
                found[name] = several
    return found


def needs_of(plain: Mapping[str, Any]) -> Needs:
    """The needs of a shard or a job, from JSON."""
    windows = tuple(Demand(**_adjustable(each)) for each in plain["windows"])
    grains = tuple(
        GrainDemand(**{**_adjustable(each), "windows": tuple(each["windows"])}) for each in plain["grains"]
    )
    return Needs(plain["fixed"], plain["held"], windows, grains)


def _adjustable(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {**plain, "cohorts": tuple(Cohort(**each) for each in plain["cohorts"])}
