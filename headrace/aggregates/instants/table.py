"""Which class keeps which partial value by instant, and how specs share what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from headrace.aggregates.codecs import Codec
from headrace.aggregates.instants.folds import folded_instants
from headrace.aggregates.instants.protocol import InstantValue, Steps
from headrace.aggregates.instants.sums import NullTotals, RealTotals, RowTotals, WholeTotals
from headrace.aggregates.instants.trees import GREATEST, LEAST, Arrivals, Ordered, Values
from headrace.aggregates.specs import (
    Distinct,
    First,
    Folded,
    Greatest,
    Last,
    Least,
    Nulls,
    Real,
    Rows,
    Spec,
    Whole,
)
from headrace.arrays import Ints
from headrace.plan.nodes.core import Aggregate

PLAIN: Final[dict[type[Any], Callable[[Any], InstantValue]]] = {
    Rows: RowTotals,
    Nulls: NullTotals,
    Whole: WholeTotals,
    Real: RealTotals,
}
"""Values that keep what one spec needs."""

SHARED: Final[dict[type[Any], tuple[type[Ordered], Callable[[Any, Any], Any]]]] = {
    Least: (Values, lambda values, out: values.extreme(out, LEAST)),
    Greatest: (Values, lambda values, out: values.extreme(out, GREATEST)),
    Distinct: (Values, lambda values, out: values.distinct(out)),
    First: (Arrivals, lambda arrivals, out: arrivals.value(out, LEAST)),
    Last: (Arrivals, lambda arrivals, out: arrivals.value(out, GREATEST)),
}
"""Values read from a forest that the specs of one column share."""


class InstantValues:
    """All partial values of an aggregate."""

    def __init__(self, specs: Sequence[Spec], codecs: Mapping[str, Codec], plan: Aggregate) -> None:
        self._plain = {spec: PLAIN[type(spec)](spec) for spec in specs if type(spec) in PLAIN}
        folded = [spec for spec in specs if isinstance(spec, Folded)]
        self._plain |= {spec: folded_instants(spec, codecs, plan.input) for spec in folded}
        self._shared: dict[Spec, tuple[str, type[Ordered]]] = {
            spec: (spec.column, SHARED[type(spec)][0])  # type: ignore[union-attr]
            for spec in specs
            if type(spec) in SHARED
        }
        self._forests = {
            (column, kind): kind(column, codecs[column])
            for column, kind in dict.fromkeys(self._shared.values())
        }

    @property
    def rows(self) -> RowTotals:
        """How many rows each group has."""
        rows = self._plain[Rows()]
        assert isinstance(rows, RowTotals)
        return rows

    @property
    def all(self) -> dict[str, InstantValue]:
        """What is kept, by name."""
        plain = {str(spec): value for spec, value in self._plain.items()}
        return plain | {f"{kind.__name__}({column})": f for (column, kind), f in self._forests.items()}

    @property
    def movable(self) -> bool:
        """Whether the values of a group can be evicted."""
        return all(value.movable for value in self.all.values())

    def put_away(self, codes: Ints, groups: int) -> dict[str, pa.Array]:
        """All values of some groups, a row each."""
        return {
            f"{at}:{name}": column
            for at, value in self.all.items()
            for name, column in value.put_away(codes, groups).items()
        }

    def take_back(self, codes: Ints, groups: int, found: pa.RecordBatch) -> None:
        """Restore the values of groups that are new here."""
        for at, value in self.all.items():
            prefix = f"{at}:"
            names = [name for name in found.schema.names if name.startswith(prefix)]
            value.take_back(codes, groups, {n.removeprefix(prefix): found.column(n) for n in names})

    def run(self, steps: Steps, groups: int) -> dict[Spec, Any]:
        """The value of every spec at every position."""
        found: dict[Spec, Any] = {spec: value.run(steps, groups) for spec, value in self._plain.items()}
        ran = {key: forest.run(steps, groups) for key, forest in self._forests.items()}
        for spec, key in self._shared.items():
            found[spec] = SHARED[type(spec)][1](self._forests[key], ran[key])
        return found
