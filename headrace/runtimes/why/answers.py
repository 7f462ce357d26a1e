"""`why --answers`: the answers that wait, their values so far, and what could still change them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from headrace.engine.unfinished import Open, Unfinished
from headrace.runtimes.words import instant, listed

MOST = 20
"""How many answers of a query are shown, if nothing else is said."""


@dataclass(frozen=True)
class Answers:
    """The answers that wait in the newest checkpoint of a run, at the instant `now` of its clock."""

    waiting: tuple[Unfinished, ...]
    now: int
    ticks_per_second: int | None
    most: int = MOST

    def plain(self) -> dict[str, Any]:
        """All of them as plain data, for JSON."""
        return {"now": self.now, "answers": [asdict(each) for each in self.waiting]}

    def __str__(self) -> str:
        if not self.waiting:
            return f"No answer waits in the checkpoint of {self._at(self.now)}."
        by_query = groupby(self.waiting, lambda each: each.query)
        return "\n".join(line for query, each in by_query for line in self._of_query(query, list(each)))

    def _at(self, tick: int) -> str:
        return instant(tick, self.ticks_per_second)

    def _of_query(self, query: str, answers: Sequence[Unfinished]) -> Iterator[str]:
        """The answers of a query: those that the same streams could change are shown together."""
        count = f"{len(answers):,} answers are" if len(answers) > 1 else "1 answer is"
        yield f"Query {query}: {count} not final in the checkpoint of {self._at(self.now)}."
        shown = answers[: self.most]
        for (time, streams), group in groupby(shown, lambda each: (each.time, each.streams)):
            said = listed([self._open(each) for each in streams]) or "nothing any more"
            yield f"  at {self._at(time)}; could be changed by {said}"
            yield from (f"    {json.dumps(each.row, default=str)}" for each in group)
        if len(answers) > len(shown):
            yield f"  and {len(answers) - len(shown):,} more"

    def _open(self, each: Open) -> str:
        """A stream, and when it can change nothing more."""
        ends = []
        if each.by_clock is not None:
            ends.append(f"the clock says {self._at(each.by_clock)}")
        if each.after_row is not None:
            ends.append(f"it has a row later than {self._at(each.after_row)}")
        return f"{each.stream} until {' or '.join(ends)}" if ends else each.stream
