"""`shed` of a stream: which backlog is too much, and what share of the rows beyond it is kept."""

from __future__ import annotations

import re
from typing import Any, Final

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_BYTES: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}


def backlog(text: str) -> dict[str, int]:
    """`{"rows": n}` or `{"bytes": n}` of text such as "100000 rows" or "64 MB"."""
    match = _AMOUNT.fullmatch(text)
    unit = match[2].lower() if match else ""
    if match and unit in ("row", "rows") and "." not in match[1]:
        return {"rows": int(match[1])}
    if match and unit in _BYTES:
        return {"bytes": int(float(match[1]) * _BYTES[unit])}
    raise ValueError(f'{text!r} is no backlog: write "100000 rows" or "64 MB"')


def checked(value: Any) -> Any:
    """The text, if it says a backlog."""
    if isinstance(value, str):
        backlog(value)
    return value
