"""Punctuations as plain data, for snapshots: the one place that knows how a pattern is written down."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.errors import GraphError
from headrace.flow import plain
from headrace.time.punctuation import Between, Constant, OneOf, Pattern, Punctuation

Bytes = npt.NDArray[np.uint8]
_PATTERNS: Final[dict[str, type[Pattern]]] = {"constant": Constant, "one of": OneOf, "between": Between}
_NAMES: Final = {kind: name for name, kind in _PATTERNS.items()}


def to_plain(punctuation: Punctuation) -> list[Any]:
    """A punctuation as plain values."""
    patterns = [[name, _NAMES[type(each)], *vars(each).values()] for name, each in punctuation.patterns]
    return [punctuation.until, patterns]


def from_plain(written: list[Any]) -> Punctuation:
    """The punctuation that `to_plain` wrote."""
    until, patterns = written
    return Punctuation(until, tuple((name, _PATTERNS[kind](*values)) for name, kind, *values in patterns))


def to_bytes(value: Any) -> Bytes:
    """Plain values as a chunk of a snapshot holds them."""
    try:
        return np.frombuffer(plain.dumps(value), np.uint8)
    except plain.NotPlain as error:
        raise GraphError(
            "HR-G019",
            f"a punctuation holds {error}, which a snapshot cannot hold",
            hint="use numbers, text, bytes, dates, times and decimals in patterns",
        ) from None


def from_bytes(written: Bytes) -> Any:
    """What `to_bytes` wrote."""
    try:
        return plain.loads(written.tobytes())
    except plain.Malformed as error:
        raise unreadable(str(error)) from error


def unreadable(reason: str) -> GraphError:
    """What is said of a snapshot whose content this version did not write."""
    return GraphError(
        "HR-G020",
        f"the snapshot holds what cannot be read: {reason}",
        hint="it is damaged or was written by another version: use another checkpoint, or start over",
    )
