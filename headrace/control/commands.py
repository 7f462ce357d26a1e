"""Commands: the changes that a running pipeline can be asked for, as plain data.

    {"kind": "add_query", "name": "hot", "sql": "SELECT …", "sink": "hot.jsonl"}

Values are written as in the pipeline file: durations as text, sinks as a path or a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final

from headrace.errors import ControlError

Length = str | int
"""A duration as in the pipeline file: text, or a number of ticks."""
Instant = str | int
"""An instant as in the pipeline file: an ISO date and time, or a tick."""


@dataclass(frozen=True)
class AddQuery:
    """Start a query; it covers rows that are read from now on."""

    name: str
    sql: str
    sink: str | Mapping[str, Any]
    late: str | Mapping[str, Any] | None = None
    rejected: str | Mapping[str, Any] | None = None
    importance: float | None = None


@dataclass(frozen=True)
class RemoveQuery:
    """Stop a query; what it has written stays."""

    name: str


@dataclass(frozen=True)
class Pause:
    """Hold the answers of a query, without losing any, until it is resumed."""

    query: str


@dataclass(frozen=True)
class Resume:
    """Write the answers of a paused query again, those that were held first."""

    query: str


@dataclass(frozen=True)
class Resize:
    """Change a window or granularity of a query, within its bounds, for rows with time ≥ `since`.

    `of` names the stream of the window, or is `granularity`; it is needed if the query has several. Without
    `since`, the change holds as soon as possible.
    """

    query: str
    size: Length
    of: str | None = None
    since: Instant | None = None


@dataclass(frozen=True)
class SetBudget:
    """Set the memory budget and what happens if the smallest windows do not fit; None: no budget."""

    budget: str | int | None
    policy: str = "fail"


@dataclass(frozen=True)
class SetStrategy:
    """Run operators in another order: all, or those of a query, which keep it when all others change."""

    strategy: str
    query: str | None = None


@dataclass(frozen=True)
class SetLevel:
    """Make heartbeats per `query`, per `operator`, or memory-aware (`memory`)."""

    level: str


@dataclass(frozen=True)
class SetBounds:
    """Set some of `disorder`, `latency` and `guard` of a stream; None removes a bound, others stay."""

    stream: str
    bounds: Mapping[str, Length | None]


@dataclass(frozen=True)
class Punctuate:
    """Promise that no later row of a stream matches all patterns (and has a time ≤ `until`).

    By column: `{"is": value}`, `{"in": [values]}`, or `{"from": low, "to": high}` with either end left out.
    """

    stream: str
    patterns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    until: Instant | None = None


@dataclass(frozen=True)
class Heartbeat:
    """Promise that later rows of a stream have times > `time`."""

    stream: str
    time: Instant


@dataclass(frozen=True)
class Reload:
    """Give a table the rows that its file or database has now, for rows of streams with time ≥ `since`.

    Without `since`, or if rows of that time have been answered, they count as soon as possible. `rows` names
    the rows in the log (`Log.keep`): they were read when the command was written, and a run that is repeated
    uses the same ones. A recorded run has them in `content`, in base64.
    """

    table: str
    since: Instant | None = None
    rows: str | None = None
    content: str | None = None


@dataclass(frozen=True)
class Stop:
    """Stop the run with a commit; the next run continues."""


Command = (
    AddQuery
    | RemoveQuery
    | Pause
    | Resume
    | Resize
    | SetBudget
    | SetStrategy
    | SetLevel
    | SetBounds
    | Punctuate
    | Heartbeat
    | Reload
    | Stop
)

KINDS: Final[dict[str, type[Command]]] = {
    "add_query": AddQuery,
    "remove_query": RemoveQuery,
    "pause": Pause,
    "resume": Resume,
    "resize": Resize,
    "budget": SetBudget,
    "strategy": SetStrategy,
    "level": SetLevel,
    "bounds": SetBounds,
    "punctuate": Punctuate,
    "heartbeat": Heartbeat,
    "reload": Reload,
    "stop": Stop,
}
_NAMES: Final = {of: kind for kind, of in KINDS.items()}


def kind_of(command: Command) -> str:
    """The name of a command's kind."""
    return _NAMES[type(command)]


def to_json(command: Command) -> dict[str, Any]:
    """The command as JSON data."""
    values = {each.name: getattr(command, each.name) for each in fields(command)}
    defaults = {each.name: each.default for each in fields(command)}
    shown = {name: value for name, value in values.items() if value is not None or defaults[name] is MISSING}
    return {"kind": kind_of(command), **shown}


def from_json(written: Mapping[str, Any], place: str = "") -> Command:
    """The command that `to_json` wrote; an error names the place if this version does not know it."""
    kind = written.get("kind")
    of = KINDS.get(str(kind))
    values = {name: value for name, value in written.items() if name != "kind"}
    if of is None or values.keys() - {each.name for each in fields(of)}:
        what = f"the kind {kind!r}" if of is None else f"this form of {kind!r}"
        raise ControlError(
            "HR-L003",
            f"this version of Headrace does not know {what} of a command",
            place=place,
            hint=f"use the version that wrote it; known kinds: {', '.join(KINDS)}",
        )
    missing = [each.name for each in fields(of) if _is_required(each) and each.name not in values]
    if missing:
        raise ControlError("HR-L009", f"a command of kind {kind!r} needs {missing[0]!r}", place=place)
    command: Command = of(**values)
    return command


def _is_required(each: Any) -> bool:
    """Whether a field has no default."""
    return each.default is MISSING and each.default_factory is MISSING


def describe(command: Command) -> str:
    """The command in words, for lists and notes."""
    values = {k: v for k, v in to_json(command).items() if k not in ("kind", "sql", "rows", "content")}
    shown = ", ".join(f"{name} = {value!r}" for name, value in values.items())
    kind = kind_of(command).replace("_", " ")
    return f"{kind}: {shown}" if shown else kind
