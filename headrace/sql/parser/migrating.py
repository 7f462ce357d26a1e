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
    ("DELAY", "OF"): WATERMARK,
    ("GRACE", "PERIOD"): "remove it: how late rows may be is set in the pipeline file, or by bounds=",
    ("INSERT", "INTO"): "write SELECT … FROM …; where answers go is set in the pipeline file",
    ("WITH", "("): "remove WITH (…): the source of a stream is set in the pipeline file",
    (
        "FROM_CHANGELOG",
        "(",
    ): "declare it: CREATE TABLE t PRIMARY KEY (k) FROM s FORMAT FLINK; SELECT … FROM t",
    ("TO_CHANGELOG", "("): "write CHANGELOG(SELECT … FROM t), or CHANGELOG(SELECT …) PRIMARY KEY (k)",
}
"""Each phrase and what to write."""
WINDOWS: Final = {
    "TUMBLING": "[RANGE {0} SLIDE {0}]",
    "HOPPING": "[RANGE {0} SLIDE {1}]",
    "SESSION": "[SESSION {0}]",
}
"""Windows of ksqlDB by their word, with the durations that they name."""
NOT_SIZES: Final = frozenset({"RETENTION", "GRACE"})
INTERVAL: Final = "write ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL {0} AND a.ts + INTERVAL {0}"
QUOTED: Final = frozenset({TokenType.STRING, TokenType.RAW_STRING})


def phrase_in(tokens: Sequence[Token]) -> Phrase | None:
    """The first phrase of another system among the tokens."""
    words = ["" if each.token_type in QUOTED else each.text.upper() for each in tokens]
    for at in range(len(words)):
        for phrase, hint in PHRASES.items():
            if tuple(words[at : at + len(phrase)]) == phrase:
                span = Span(tokens[at].start, tokens[at + len(phrase) - 1].end + 1)
                if phrase[0] == "WINDOW":
                    hint = _windowed(words, at) or hint
                return Phrase(f"CQL does not have {' '.join(phrase).rstrip(' (')}", hint, span)
        if words[at] == "WITHIN" and "JOIN" in words[:at]:
            sizes = _durations(words[at + 1 :])
            span = Span(tokens[at].start, tokens[at].end + 1)
            return Phrase("WITHIN is for SEQ", INTERVAL.format((sizes or ["10 MINUTES"])[0]), span)
    return None


def _windowed(words: Sequence[str], at: int) -> str | None:
    """The window of ksqlDB at a place, with its own durations, on the stream in FROM."""
    end = words.index(")", at) if ")" in words[at:] else len(words)
    inside = words[at + 2 : end]
    stop = next((i for i, word in enumerate(inside) if word in NOT_SIZES), len(inside))
    sizes = _durations(inside[:stop])
    form = WINDOWS[words[at + 1]]
    if len(sizes) < 1 + ("{1}" in form) or "FROM" not in words[:at]:
        return None
    stream = words[at - words[at - 1 :: -1].index("FROM")]
    return f"put the window on the stream: FROM {stream.lower()} {form.format(*sizes)}"


def _durations(words: Sequence[str]) -> list[str]:
    """Numbers with the words after them."""
    return [f"{word} {words[i + 1]}" for i, word in enumerate(words[:-1]) if word.isdecimal()]
