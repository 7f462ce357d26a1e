"""Sharing as text: `tests/plan/sharing.sql` shows what `share` makes of the plans of several queries.

The file has a comment, then cases:

    -- case: what this case shows
    SELECT k, v FROM s [RANGE 60];
    SELECT k, t FROM s [RANGE 60]
    -- before
    q0: istream
    …
    -- after
    …

`before` has the plan of each query, optimized alone; `after` has the plan that it shares with the others.
Where nothing is shared, the title starts with "not" and `after` is the line `(unchanged)`. Queries after the
line `-- fixed` run already. Numbers in windows are ticks. To add a case, write its title and queries, then
write the plans with

    python -m tests.plan.sharing_fixtures
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headrace import query
from headrace.plan.nodes.core import Plan
from headrace.plan.rewrite import share
from headrace.plan.show import show
from tests.plan.rewrite_fixtures import AFTER, BEFORE, CASE, STREAMS, UNCHANGED

FILE = Path(__file__).with_name("sharing.sql")
FIXED = "-- fixed\n"


@dataclass(frozen=True)
class Fixture:
    """One case. `before` and `after` are empty if they have not been written yet."""

    title: str
    text: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{CASE}{self.title}\n{self.text}\n{BEFORE}{self.before}\n{AFTER}{self.after}\n"


def read() -> tuple[str, list[Fixture]]:
    """The comment at the top of the file, and its cases."""
    comment, *cases = FILE.read_text().split(CASE)
    return comment, [_parse(case) for case in cases]


def _parse(case: str) -> Fixture:
    written, _, plans = case.partition(BEFORE)
    title, _, text = written.partition("\n")
    before, _, after = plans.partition(AFTER)
    return Fixture(title.strip(), text.strip(), before.rstrip(), after.rstrip())


def rewritten(fixture: Fixture) -> Fixture:
    """The fixture with the plans that `share` really gets and makes."""
    new, _, running = fixture.text.partition(FIXED)
    fixed = _plans(running, "fixed")
    before = _plans(new, "q")
    after = share(before, fixed)
    changed = _text(after) if after != before else UNCHANGED
    return replace(fixture, before=_text({**before, **fixed}), after=changed)


def _plans(texts: str, prefix: str) -> dict[str, Plan]:
    parts = [each for each in texts.split(";") if each.strip()]
    return {
        f"{prefix}{i}": query(each, STREAMS, ticks_per_second=None).plan for i, each in enumerate(parts, 1)
    }


def _text(plans: Mapping[str, Plan]) -> str:
    return "\n".join(f"{name}: {show(plan)}" for name, plan in plans.items())


def write() -> None:
    """Write the plans of all cases into the file."""
    comment, cases = read()
    FILE.write_text(comment.rstrip() + "\n\n" + "\n".join(str(rewritten(case)) for case in cases))


if __name__ == "__main__":
    write()
