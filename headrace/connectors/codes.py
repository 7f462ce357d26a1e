"""The codes of input that is no row; `docs/pipelines.md` has a line for each."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Stable across releases: a code is never given another meaning."""

    SYNTAX = "HR-R101"
    TYPE = "HR-R102"
    ENCODING = "HR-R103"
    TOO_LONG = "HR-R104"
    COLUMNS = "HR-R105"
    UNREADABLE = "HR-R106"
    IMPLAUSIBLE = "HR-R107"
    TOO_LARGE = "HR-R108"
    CUT = "HR-R109"
