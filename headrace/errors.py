"""Every error of Headrace: one root class, and one class per stage of processing."""

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
    """A bound, heartbeat or clock has a time that is not valid."""

    stage = "time"


class ExpressionError(HeadraceError):
    """An expression has a type error or cannot be compiled."""

    stage = "expression"


class PlanError(HeadraceError):
    """A plan is not valid."""

    stage = "plan"


class GraphError(HeadraceError):
    """A query graph cannot be built or changed as requested."""

    stage = "graph"


class ScheduleError(HeadraceError):
    """A scheduling strategy, table or break node does not exist."""

    stage = "schedule"


class InputError(HeadraceError):
    """The engine cannot accept a batch of rows."""

    stage = "input"


class SparkError(HeadraceError):
    """Spark cannot start, or does not support what was requested."""

    stage = "spark"


class ConnectorError(HeadraceError):
    """A source cannot be read, or a sink cannot be written."""

    stage = "connector"


class SpillError(HeadraceError):
    """State cannot be spilled to disk, or cannot be read back."""

    stage = "spill"


class BudgetError(HeadraceError):
    """A memory budget is not valid, or even the smallest windows do not fit into it."""

    stage = "memory"


class PipelineError(HeadraceError):
    """A pipeline file cannot be read or is not valid."""

    stage = "pipeline"


class DurabilityError(HeadraceError):
    """A checkpoint cannot be written, or a run cannot continue from it."""

    stage = "durability"


class ControlError(HeadraceError):
    """A command for a running pipeline is not valid, or the control log cannot be read or written."""

    stage = "control"


class SqlError(HeadraceError):
    """A query cannot be parsed or is not valid.

    `line` and `column` count from 1; they are 0 if the place in the text is not known. `excerpt` is the
    line with carets under the place.
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
    """A user-defined function or aggregate raised an error, or returned something that is not valid."""

    stage = "user code"


class HeadraceWarning(UserWarning):
    """Something works, but not as well as it could: the text says what to change."""
