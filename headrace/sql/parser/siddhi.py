"""Queries of Siddhi in CQL, for the hint of an error: `from every e1=a -> not b for 1 sec select ……`.

Patterns become SEQ, windows become ours. What is not understood is the empty text.
"""

from __future__ import annotations

import re
from typing import Final

QUERY: Final = re.compile(
    r"(?:^|;|\bbegin|@[\w:]+\([^)]*\))\s*from\s+(?P<input>.*?)\s*\bselect\s+(?P<select>.*?)"
    r"(?P<group>\bgroup\s+by\s.*?)?(?P<having>\bhaving\s.*?)?"
    r"\binsert\s+(?:\w+\s+events\s+)?into\b",
    re.IGNORECASE | re.DOTALL,
)
ABSENT: Final = re.compile(r"not\s+(?P<stream>\w+)\s*(\[(?P<filter>.*)\])?\s*(for\s+(?P<time>\d+\s+\w+))?")
PRESENT: Final = re.compile(
    r"((?P<name>\w+)\s*=)?\s*(?P<stream>\w+)\s*(\[(?P<filter>.*)\])?\s*(<(?P<count>[\d:]+)>)?"
)
PLAIN: Final = re.compile(
    r"(?P<stream>\w+)\s*(\[(?P<filter>.*)\])?\s*(#window\.(?P<window>\w+)\((?P<size>.*)\))?"
)
FILTER: Final = re.compile(r"\[(?:[^\[\]]|\[\w+\])*\]")
WITHIN: Final = re.compile(r"\bwithin\s+(\d+\s+\w+)")
PARTITION: Final = re.compile(r"partition\s+with\s*\(\s*(\w+)\s+of\s+\w+")
WORD: Final = re.compile(r"'[^']*'|\"[^\"]*\"|(?<![\w.\]])([A-Za-z_]\w*)(?![\w(.\[])")
KEYWORDS: Final = frozenset({"and", "or", "not", "is", "null", "true", "false"})
PICKED: Final = re.compile(r"(\w+)\[(\w+)\]\.(\w+)")
UNITS: Final = {"sec": "SECOND", "min": "MINUTE", "millisec": "MILLISECOND"}
WINDOWS: Final = {
    "time": "[RANGE {}]",
    "timeBatch": "[RANGE {0} SLIDE {0}]",
    "externalTime": "[RANGE {}]",
    "externalTimeBatch": "[RANGE {0} SLIDE {0}]",
    "session": "[SESSION {}]",
    "length": "[ROWS {}]",
    "lengthBatch": "[ROWS {0} SLIDE {0}]",
}


def in_cql(text: str) -> str | None:
    """The first query of Siddhi in a text, in CQL; the empty text if it is one that is not understood."""
    found = QUERY.search(text)
    if found is None:
        return None
    source = found["input"].strip()
    is_pattern = "->" in source or re.match(r"(every\s+)?(not\s|\w+\s*=)", source) is not None
    try:
        if is_pattern:
            key = PARTITION.search(text)
            return _Sequence().written(source, found["select"], key[1] if key else None)
        return _plain(source, found)
    except ValueError:
        return ""


def _plain(source: str, found: re.Match[str]) -> str:
    """A query over one stream."""
    parts = PLAIN.fullmatch(source)
    if parts is None:
        raise ValueError(source)
    window = ""
    if parts["window"]:
        if parts["window"] not in WINDOWS:
            raise ValueError(source)
        window = " " + WINDOWS[parts["window"]].format(_time(parts["size"].split(",")[-1]))
    clauses = [
        f"SELECT {_operators(found['select'])} FROM {parts['stream']}{window}",
        *([f"WHERE {_operators(parts['filter'])}"] if parts["filter"] else []),
        *(_operators(each) for each in (found["group"], found["having"]) if each),
    ]
    return " ".join(clauses)


def _operators(text: str) -> str:
    """Comparisons and blanks as in SQL."""
    text = re.sub(r"\"([^\"]*)\"", r"'\1'", text)
    return " ".join(text.replace("==", "=").split())


def _time(text: str) -> str:
    """`1 sec` as `1 SECOND`; a number as it is."""
    number, _, unit = text.strip().partition(" ")
    unit = unit.strip().lower()
    return f"{number} {UNITS.get(unit, unit.upper())}".strip()


class _Sequence:
    """Translates a pattern; collects its filters as conditions, with the columns qualified by their steps."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._counted: set[str] = set()
        self._filters: list[str] = []

    def written(self, source: str, selected: str, key: str | None) -> str:
        """The whole query."""
        within = WITHIN.search(source)
        source = WITHIN.sub("", source)
        every = re.search(r"\bevery\s", source) is not None
        parts = re.sub(r"\bevery\s+", "", source).split("->")
        steps = ", ".join(self._part(each) for each in parts)
        conditions = " AND ".join(self._picked(each) for each in self._filters)
        clauses = [
            f"SELECT {self._columns(selected)} FROM SEQ({steps}) {'EVERY' if every else 'DISJOINT'}",
            *([f"PARTITION BY {key}"] if key else []),
            *([f"WITHIN {_time(within[1])}"] if within else []),
            *([f"WHERE {conditions}"] if conditions else []),
        ]
        return " ".join(clauses)

    def _part(self, text: str) -> str:
        """What is between two arrows: a step, or two with AND or OR."""
        bare = FILTER.sub(lambda found: "#" * len(found[0]), text)
        for word in ("and", "or"):
            if found := re.search(rf"\s{word}\s", bare):
                both = (text[: found.start()], text[found.end() :])
                return f"({f' {word.upper()} '.join(map(self._step, both))})"
        return self._step(text)

    def _step(self, text: str) -> str:
        text = text.strip()
        absent = text.startswith("not ")
        found = (ABSENT if absent else PRESENT).fullmatch(text)
        if found is None:
            raise ValueError(text)
        name = f"n{len(self._names)}" if absent else found["name"] or f"s{len(self._names)}"
        self._names.append(name)
        if found["filter"]:
            self._filters.append(f"({self._qualified(found['filter'], name)})")
        if absent:
            lasting = f" FOR {_time(found['time'])}" if found["time"] else ""
            return f"NOT {found['stream']} AS {name}{lasting}"
        if not found["count"]:
            return f"{found['stream']} AS {name}"
        self._counted.add(name)
        least, colon, most = found["count"].partition(":")
        return f"{found['stream']}{{{f'{least or 0},{most}' if colon else least}}} AS {name}"

    @staticmethod
    def _qualified(condition: str, step: str) -> str:
        """A condition with its bare columns qualified."""

        def own(found: re.Match[str]) -> str:
            word = found[1]
            return f"{step}.{word}" if word and word.lower() not in KEYWORDS else found[0]

        return _operators(WORD.sub(own, condition))

    @staticmethod
    def _picked(text: str) -> str:
        """`e1[0].price` and `e1[last].price`."""

        def one(found: re.Match[str]) -> str:
            step, at, column = found.groups()
            return f"last({step}.{column})" if at == "last" else f"first({step}.{column}, {at})"

        return PICKED.sub(one, text)

    def _columns(self, text: str) -> str:
        """The columns of SELECT; a column of a repeated step is that of its first row."""
        found = []
        for each in text.split(","):
            value, _, name = _operators(each).partition(" as ")
            step, dot, column = value.partition(".")
            if dot and step in self._counted:
                value = f"first({step}.{column})"
            value = "1" if value in ("*", "count()") else self._picked(value)
            found.append(f"{value} AS {name}" if name else value)
        return ", ".join(found)
