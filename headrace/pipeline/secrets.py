"""Secrets in a pipeline file: `${NAME}` stands for a variable of the environment.

The pipeline keeps the text as it is written, so that `explain`, the status, checkpoints and recorded runs
never have the value. It is put in where a connection is made, and errors show `${NAME}` in its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from headrace.errors import PipelineError, hide

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def revealed(written: str, place: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with the values of the variables that it names; its place is for the error."""
    values = os.environ if environment is None else environment

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        if found is None:
            raise PipelineError(
                "HR-F162",
                f"the environment has no variable {match[1]}",
                place=place,
                hint=f"set it where the pipeline runs: {match[1]}=… headrace run …",
            )
        hide(found, match[0])
        return found

    return _VARIABLE.sub(value, written)


def revealed_options(written: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Options with the values of the variables that their texts name."""
    return {
        key: revealed(value, f"{place}.{key}") if isinstance(value, str) else value
        for key, value in written.items()
    }
