"""One root class, one class per stage, a stable code, the place, and a hint."""

from __future__ import annotations


class HeadraceError(Exception):
    """Root of every error a user can meet.

    `code` is stable across releases, `place` says where (a stream, an operator, a position in the
    query text), `hint` says what to do about it.
    """

    stage = "headrace"

    def __init__(self, code: str, message: str, *, place: str = "", hint: str = "") -> None:
        self.code = code
        self.message = message
        self.place = place
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        where = f" (at {self.place})" if self.place else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"[{self.code}] {self.message}{where}{hint}"


class TimeError(HeadraceError):
    """Bounds, heartbeats, clocks: a time that cannot be."""

    stage = "time"


class ExpressionError(HeadraceError):
    """An expression that does not type or does not compile."""

    stage = "expression"


class PlanError(HeadraceError):
    """A plan that has no meaning."""

    stage = "plan"


class GraphError(HeadraceError):
    """A query graph that cannot be built or changed as asked."""

    stage = "graph"


class ScheduleError(HeadraceError):
    """A strategy, table or break node that does not exist."""

    stage = "schedule"


class InputError(HeadraceError):
    """A batch that the engine cannot take."""

    stage = "input"


class SparkError(HeadraceError):
    """Spark cannot start, or cannot do what was asked of it."""

    stage = "spark"


class ConnectorError(HeadraceError):
    """A source that cannot be read or a sink that cannot be written."""

    stage = "connector"


class SpillError(HeadraceError):
    """State that cannot be put away, or cannot be read back."""

    stage = "spill"


class BudgetError(HeadraceError):
    """A budget that is none, or that even the least windows do not fit into."""

    stage = "memory"


class PipelineError(HeadraceError):
    """A pipeline file that cannot be read or has no meaning."""

    stage = "pipeline"


class DurabilityError(HeadraceError):
    """A checkpoint that cannot be written, or not be gone on from."""

    stage = "durability"


class SqlError(HeadraceError):
    """A query text that cannot be read or has no meaning.

    `line` and `column` count from 1; 0 where no place in the text can be named. `excerpt` is the line with
    carets under the place.
    """

    stage = "sql"

    def __init__(
        self, code: str, message: str, *, line: int = 0, column: int = 0, excerpt: str = "", hint: str = ""
    ) -> None:
        self.line = line
        self.column = column
        self.excerpt = excerpt
        place = f"line {line}, column {column}" if line else ""
        super().__init__(code, message, place=place, hint=hint)

    def _text(self) -> str:
        first, *rest = super()._text().split("\n", 1)
        return "\n".join([first, *([self.excerpt] if self.excerpt else []), *rest])


class UserCodeError(HeadraceError):
    """A function or an aggregate of the user's own that raised, or gave what it may not."""

    stage = "user code"


class HeadraceWarning(UserWarning):
    """Something that works, but not as well as it could: the text says how it could."""
