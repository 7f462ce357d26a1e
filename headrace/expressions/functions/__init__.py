"""The functions that expressions may call, by lower-case name."""

from __future__ import annotations

from typing import Final

from headrace.expressions.scope import Rule

FUNCTIONS: Final[dict[str, Rule]] = {}
