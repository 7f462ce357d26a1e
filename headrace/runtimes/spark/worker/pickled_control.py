"""What a host needs to follow the control log, as bytes until the first command comes.

With it come the pipeline file and the query language, whose modules a worker would otherwise import at its
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from headrace.plan.nodes.core import Plan

if TYPE_CHECKING:
    from headrace.runtimes.spark.worker.controlling import ControlSpec, Following, Windows


@dataclass(frozen=True)
class PickledControl:
    """A `ControlSpec` as bytes."""

    pickled: bytes

    @staticmethod
    def of(control: ControlSpec) -> PickledControl:
        """The bytes of a specification."""
        return PickledControl(cloudpickle.dumps(control))  # type: ignore[no-untyped-call]

    def following(
        self,
        shard_keys: tuple[int, ...],
        queries: Mapping[str, Plan],
        windows: Windows,
        followed: Mapping[str, Any] | None,
    ) -> Following:
        """How a shard of a host follows the log, from where it was."""
        control: ControlSpec = cloudpickle.loads(self.pickled)
        return control.following(shard_keys, queries, windows, followed)
