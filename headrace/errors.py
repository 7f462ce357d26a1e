"""Every error of Headrace: one root class, and one class per stage of processing."""

from __future__ import annotations

from collections.abc import Sequence

_HIDDEN: dict[str, str] = {}
"""Values that no message may show, and what is shown in their place."""


def hide(value: str, shown: str) -> None:
    """Show `shown` in place of a value, such as a password, in every error of Headrace from here on."""
    if len(value) >= 3:  # a shorter one is no secret, and would be found in many words
        _HIDDEN[value] = shown


def without_secrets(text: str) -> str:
    """A text without the values that are hidden."""
    for value in sorted(_HIDDEN, key=len, reverse=True):
        text = text.replace(value, _HIDDEN[value])
    return text


class HeadraceError(Exception):
    """Root of every error a user can meet.

    `code` is stable across releases, `place` says where (a stream, an operator, a position in the
    query text), `hint` says what to do about it.
    """

    stage = "headrace"

    def __init__(self, code: str, message: str, *, place: str = "", hint: str = "") -> None:
        self.code = code
        self.message = without_secrets(message) if _HIDDEN else message
        self.place = without_secrets(place) if _HIDDEN else place
        self.hint = without_secrets(hint) if _HIDDEN else hint
        super().__init__(self._text())

    def plain(self) -> dict[str, object]:
        """As plain data, for JSON."""
        return {"code": str(self.code), "message": self.message, "place": self.place, "hint": self.hint}

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
    """A pipeline file cannot be read or is not valid.

    `file`, `line` (from 1; 0: not known) and `key` say where. If there are several problems, `problems` has
    all of them, and the error is about the first.
    """

    stage = "pipeline"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        place: str = "",
        hint: str = "",
        file: str = "",
        line: int = 0,
        key: str = "",
        problems: Sequence[HeadraceError] = (),
    ) -> None:
        self.file, self.line, self.key = file, line, key
        self.problems = tuple(problems)
        super().__init__(code, message, place=place, hint=hint)

    def plain(self) -> dict[str, object]:
        found = {**super().plain(), "file": self.file, "line": self.line, "key": self.key}
        return {**found, "problems": [each.plain() for each in self.problems]} if self.problems else found

    def _text(self) -> str:
        if not self.problems:
            return super()._text()
        return "\n".join([f"{len(self.problems)} problems", *map(str, self.problems)])


def together(problems: Sequence[HeadraceError]) -> HeadraceError:
    """The only problem, or an error with all of them."""
    first = problems[0]
    if len(problems) == 1:
        return first
    return PipelineError(
        first.code,
        first.message,
        place=first.place,
        hint=first.hint,
        file=getattr(first, "file", ""),
        line=getattr(first, "file_line", getattr(first, "line", 0)),
        key=getattr(first, "key", ""),
        problems=problems,
    )


class DurabilityError(HeadraceError):
    """A checkpoint cannot be written, or a run cannot continue from it."""

    stage = "durability"


class ControlError(HeadraceError):
    """A command for a running pipeline is not valid, or the control log cannot be read or written."""

    stage = "control"


class SqlError(HeadraceError):
    """A query cannot be parsed or is not valid.

    `line` and `column` count from 1; they are 0 if the place in the text is not known. `excerpt` is the
    line with carets under the place. For a query of a pipeline file, `file`, `file_line` and `key` say where
    it is there.
    """

    stage = "sql"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        line: int = 0,
        column: int = 0,
        excerpt: str = "",
        hint: str = "",
        place: str = "",
        file: str = "",
        file_line: int = 0,
        key: str = "",
    ) -> None:
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.file, self.file_line, self.key = file, file_line, key
        where = f"line {line}, column {column}" if line else ""
        super().__init__(code, message, place=place or where, hint=hint)

    def plain(self) -> dict[str, object]:
        inside = {"file": self.file, "key": self.key} if self.file else {}
        line = self.file_line if self.file else self.line
        found = {**super().plain(), **inside, "line": line, "column": self.column, "excerpt": self.excerpt}
        return found

    def _text(self) -> str:
        first, *rest = super()._text().split("\n", 1)
        return "\n".join([first, *([self.excerpt] if self.excerpt else []), *rest])


class UserCodeError(HeadraceError):
    """A user-defined function or aggregate raised an error, or returned something that is not valid."""

    stage = "user code"


class HeadraceWarning(UserWarning):
    """Something works, but not as well as it could: the text says what to change."""
