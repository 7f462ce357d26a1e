"""Texts that are almost queries: real ones with words deleted, doubled, swapped, replaced or put in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

TOKEN = re.compile(r"\s+|\w+|'[^']*'|.", re.DOTALL)
Tokens = list[str]


def words_of(texts: Sequence[str]) -> list[str]:
    """Every word of the texts, once."""
    return sorted({token for text in texts for token in TOKEN.findall(text) if not token.isspace()})


def _delete(tokens: Tokens, at: int, other: int, word: str) -> None:
    tokens[at] = " "


def _double(tokens: Tokens, at: int, other: int, word: str) -> None:
    tokens.insert(at, f"{tokens[at]} ")


def _swap(tokens: Tokens, at: int, other: int, word: str) -> None:
    tokens[at], tokens[other] = tokens[other], tokens[at]


def _replace(tokens: Tokens, at: int, other: int, word: str) -> None:
    tokens[at] = word


def _insert(tokens: Tokens, at: int, other: int, word: str) -> None:
    tokens.insert(at, f" {word} ")


CHANGES: list[Callable[[Tokens, int, int, str], None]] = [_delete, _double, _swap, _replace, _insert]


@st.composite
def mutations(draw: st.DrawFn, texts: Sequence[str], least: int = 1, most: int = 4) -> str:
    """One of the texts with that many changes."""
    tokens, words = TOKEN.findall(draw(st.sampled_from(texts))), words_of(texts)
    for _ in range(draw(st.integers(least, most))):
        at, other = (draw(st.integers(0, len(tokens) - 1)) for _ in range(2))
        draw(st.sampled_from(CHANGES))(tokens, at, other, draw(st.sampled_from(words)))
    return "".join(tokens)
