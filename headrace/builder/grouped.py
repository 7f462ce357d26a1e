"""Rows by group, before anything is said of the groups."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.builder.builder import Builder, Given, anded, columns_of
from headrace.builder.expressions import piece


@dataclass(frozen=True, eq=False)
class Grouped:
    """What `group_by` gives; `named` keys are (name, expression)."""

    rows: Builder
    keys: tuple[Given, ...]
    named: tuple[tuple[str, Given], ...]
    conditions: tuple[str, ...] = ()

    def having(self, *conditions: Given) -> Grouped:
        """The groups that meet all conditions."""
        return replace(self, conditions=self.conditions + anded(conditions))

    def agg(self, *columns: Given, **named: Given) -> Builder:
        """The keys and these columns, of each group."""
        keys = columns_of(self.keys, dict(self.named))
        return self._grouped(keys + columns_of(columns, named))

    def select(self, *columns: Given, **named: Given) -> Builder:
        """These columns and no others, of each group."""
        return self._grouped(columns_of(columns, named))

    def _grouped(self, columns: tuple[str, ...]) -> Builder:
        ready = self.rows._open("keys")
        keys = tuple(piece(each, "a key").text for each in (*self.keys, *(key for _, key in self.named)))
        statement = replace(ready, keys=keys, columns=columns, having=self.conditions)
        return self.rows._with(statement)
