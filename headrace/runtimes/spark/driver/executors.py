"""Executors that Spark lost while a job runs, for `why`: from Spark's own store of its status.

A lost executor ends nothing. Spark runs its tasks again elsewhere, and the micro-batch takes longer, or waits
for ever if no executor is left.
"""

from __future__ import annotations

import logging
from typing import Final

from pyspark.sql import SparkSession

from headrace.runtimes.spark.versions import is_connect
from headrace.runtimes.status import LostExecutor

_LOG = logging.getLogger("headrace.spark")

DRIVER: Final = "driver"

PLANNED: Final = ("idle", "decommission")
"""Words in the reason of a removal that Spark itself decided on."""


def lost_since(spark: SparkSession, instant: float) -> tuple[LostExecutor, ...]:
    """The executors that were lost after an instant, in seconds of the system's clock, oldest first.

    Empty if Spark cannot be asked, as with Spark Connect and in a local session.
    """
    if is_connect(spark):
        return ()
    try:
        listed = spark.sparkContext._jsc.sc().statusStore().executorList(False)
        every = [listed.apply(i) for i in range(listed.size())]
        gone = [each for each in every if not each.isActive() and each.removeTime().isDefined()]
        left = sum(each.isActive() and each.id() != DRIVER for each in every)
        found = [
            LostExecutor(
                each.id(),
                each.removeTime().get().getTime() / 1000,
                each.removeReason().get() if each.removeReason().isDefined() else "",
                left,
            )
            for each in gone
        ]
    except Exception:  # only a part of the status is missing
        _LOG.debug("cannot list the executors", exc_info=True)
        return ()
    lost = (each for each in found if each.at >= instant and not _planned(each.reason))
    return tuple(sorted(lost, key=lambda each: each.at))


def _planned(reason: str) -> bool:
    return any(word in reason.lower() for word in PLANNED)
