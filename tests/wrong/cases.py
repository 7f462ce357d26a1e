"""Wrong queries and wrong pipeline files with their messages, as text files that people can review.

    python -m tests.wrong.cases        # writes the messages again, after a change; read the difference

A case is a line `=== title`, the input, a line `---`, and the message.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.pipeline import parse
from headrace.pipeline.hazards import hazards
from headrace.sql import query
from tests.sql.running import STREAMS

HERE: Final = Path(__file__).parent


def message_of_query(text: str) -> str:
    """What the user sees of a query that is wrong."""
    try:
        query(text, STREAMS)
    except HeadraceError as error:
        return str(error)
    return "no error"


def message_of_file(text: str) -> str:
    """What the user sees of a pipeline file that is wrong, or the warnings of one that is valid."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bids.csv").write_text("item,price,at\n")
        try:
            found = parse(text, root=folder, name="pipeline.toml")
        except HeadraceError as error:
            return str(error).replace(folder, "DIR")
        said = [f"warning: {each}" for each in (*found.warnings, *hazards(found))]
        return "\n".join(said).replace(folder, "DIR") or "no error"


FILES: Final[dict[str, Callable[[str], str]]] = {
    "queries.txt": message_of_query,
    "files.txt": message_of_file,
}


def cases(name: str) -> dict[str, tuple[str, str]]:
    """By title, the input and the message of each case of a file."""
    found: dict[str, tuple[str, str]] = {}
    for block in (HERE / name).read_text().split("=== ")[1:]:
        title, _, rest = block.partition("\n")
        text, _, message = rest.partition("\n---\n")
        assert title not in found, title
        found[title] = text, message.rstrip("\n")
    return found


def write(name: str) -> None:
    """Write the messages of all cases of a file."""
    blocks = [f"=== {title}\n{text}\n---\n{FILES[name](text)}\n" for title, (text, _) in cases(name).items()]
    (HERE / name).write_text("\n".join(blocks))


if __name__ == "__main__":
    for each in FILES:
        write(each)
