"""What people write in Flink, ksqlDB and Siddhi, and how it is written here: the hints of syntax errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlglot.tokenizer_core import Token, TokenType

from headrace.sql.place import Span


class Phrase(NamedTuple):
    """Words of another system that a text has where it cannot be read."""

    message: str
    hint: str
    span: Span


CHANGES: Final = (
    "remove it: answers come as rows change; ISTREAM(…) reports what is new, CHANGELOG(…) every change"
)
WATERMARK: Final = (
    "write TIME ts after the columns; how late rows may be is not part of a query: "
    "set disorder in the pipeline file, or pass bounds="
)
PHRASES: Final[dict[tuple[str, ...], str]] = {
    ("EMIT", "CHANGES"): CHANGES,
    ("EMIT", "FINAL"): "remove it: a sliding window and a session are reported once, when they are complete",
    ("WINDOW", "TUMBLING"): "put the window on the stream: FROM s [RANGE 10 MINUTES SLIDE 10 MINUTES]",
    ("WINDOW", "HOPPING"): "put the window on the stream: FROM s [RANGE 10 MINUTES SLIDE 1 MINUTE]",
    ("WINDOW", "SESSION"): "put the window on the stream: FROM s [SESSION 5 MINUTES]",
    ("WATERMARK", "FOR"): WATERMARK,
    ("INSERT", "INTO"): "write SELECT … FROM …; where answers go is set in the pipeline file",
    ("WITH", "("): "remove WITH (…): the source of a stream is set in the pipeline file",
    (
        "FROM_CHANGELOG",
        "(",
    ): "declare it: CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT FLINK; SELECT … FROM t",
    ("TO_CHANGELOG", "("): "write CHANGELOG(SELECT … FROM t), or CHANGELOG(SELECT …) PRIMARY KEY (k)",
}
"""Each phrase and what to write."""
QUOTED: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})


def phrase_in(tokens: Sequence[Token]) -> Phrase | None:
    """The first phrase of another system among the tokens."""
    words = ["" if each.token_type in QUOTED else each.text.upper() for each in tokens]
    for at in range(len(words)):
        for phrase, hint in PHRASES.items():
            if tuple(words[at : at + len(phrase)]) == phrase:
                span = Span(tokens[at].start, tokens[at + len(phrase) - 1].end + 1)
                return Phrase(f"CQL does not have {' '.join(phrase).rstrip(' (')}", hint, span)
    return None
