"""Lines are read at once or one by one: both ways accept the same lines and read the same values.

So a bad line costs itself, and never one of its neighbours.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace import tuning
from headrace.connectors.contract import Block
from headrace.connectors.csv_lines import CsvLines, cut
from headrace.connectors.flat_json import FlatObjects
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.lines import split
from tests.connectors.spellings import TIMES

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("small", pa.int8()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("m", pa.decimal128(10, 2)),
    ]
)


def rows(block: Block) -> list[str]:
    return [repr(row) for row in block.data.to_pylist()]


def agree(block: Block, each: list[Block]) -> None:
    """A block gives the rows of its lines, in their order, and the same lines are bad for the same reason."""
    assert rows(block) == [row for one in each for row in rows(one)]
    assert sorted(map(repr, block.bad)) == sorted(repr(bad) for one in each for bad in one.bad)


# --- CSV --------------------------------------------------------------------------------------------------

_values = (
    st.sampled_from(
        ["", " ", "1", " 7", "8 ", "+1", "0x1F", "300", "1.5", "1e3", "nan", "inf", "true", "TRUE"]
    )
    | st.sampled_from(
        ["tRue", " false", "1.555", "12345678901", '"', '""', 'a"b', '"a""b"', '"a"b', '"a', "é"]
    )
    | st.sampled_from(["\r", "\x00", "a\rb", '"1"', '" 1"', '"x,y"', '"x;y"', "2026-01-02"])
    | TIMES
)
_csv = st.lists(_values, min_size=8, max_size=10).map(",".join) | st.lists(_values, max_size=10).map(",".join)
_sound = st.builds(
    lambda i, s, at: f"{i}, 5,{i}.5,true,{s},2026-01-02 ,{at},{at},1.5",
    st.integers(-9, 9),
    st.sampled_from(["a", "", '"q"', " b "]),
    TIMES,
)


def encoded(lines: list[str], ending: str) -> bytes:
    return "".join(line + ending for line in lines).encode()


@given(st.lists(_sound | _csv, min_size=1, max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans())
@example(["1, 2,3,true,x,2026-01-02,2026-01-02,2026-01-02,1", "oops"], "\n", False)
@example(['a"b,"c', "1,2,3,true,x,2026-01-02,2026-01-02,2026-01-02,1"], "\n", False)
def test_csv_at_once_is_csv_line_by_line(lines: list[str], ending: str, torn: bool) -> None:
    decoder = CsvLines(SCHEMA, SCHEMA.names)
    block = encoded(lines, ending)
    block = block[:-1] if torn else block
    agree(decoder.decode(block), [decoder.decode(line + b"\n") for line in block.split(b"\n")])
    agree(decoder.decode(block), [decoder._line_by_line([line]) for line in split(block)])


@given(st.lists(_values, min_size=1, max_size=4), st.sampled_from([",", ";", "\t"]))
def test_a_line_is_cut_as_arrow_cuts_it(values: list[str], delimiter: str) -> None:
    line = delimiter.join(values)
    decoder = CsvLines(
        pa.schema([(f"c{i}", pa.string()) for i in range(len(values))]),
        [f"c{i}" for i in range(len(values))],
        delimiter=delimiter,
    )
    found = decoder._parsed(line.encode())
    pieces = cut(line, delimiter)
    if found is not None:
        assert [list(row.values()) for row in found.to_pylist()] == [pieces]


# --- JSON lines -------------------------------------------------------------------------------------------

_json: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | TIMES
    | st.sampled_from(["", "1", "1.5", "é", "a\nb", [1], {"x": 1}, [[[]]]])
)
_objects = st.dictionaries(st.sampled_from([*SCHEMA.names, "other"]), _json)
_odd = st.sampled_from(
    [
        b'{"i": 1',
        b"[1]",
        b"null",
        b"  ",
        b"\t",
        b'{"i": 1}{"i": 2}',
        b'{"i": 1, "i": 2}',
        b'{"s": "\\ud800"}',
        b'{"s": "\xff"}',
        b'{"other": "\xff"}',
        b'{"other": ' + b"1" * 5000 + b"}",
        b'{"other": ' + b"[" * 600 + b"]" * 600 + b"}",
        b'{"other": ' + b"[" * 3000 + b"]" * 3000 + b"}",
        b'{"s": "' + b"[" * 600 + b'"}',
        b'{"s": "a\tb"}',
        b'{"i": 01}',
        b'{"i": NaN}',
        b'{"i": 1,}',
        b' {"i": 1} ',
        b'{"i": 1}\r',
        b'\xef\xbb\xbf{"i": 1}',
    ]
)
_whole = st.builds(
    lambda i, at: {
        "i": i,
        "small": 1,
        "x": 2,
        "b": True,
        "s": "",
        "d": "2026-01-02",
        "at": at,
        "wall": at,
        "m": "1.50",
    },
    st.integers(-9, 9),
    TIMES,
)
_lines = st.lists(
    (_whole | _objects).map(lambda row: json.dumps(row).encode()) | _odd, min_size=1, max_size=12
)


@pytest.mark.parametrize("missing", ["null", "error"])
@given(_lines, st.sampled_from([b"\n", b"\r\n"]))
def test_json_at_once_is_json_line_by_line(missing: str, lines: list[bytes], ending: bytes) -> None:
    decoder = JsonLines(SCHEMA, missing=missing)
    block = b"".join(line + ending for line in lines)
    agree(decoder.decode(block), [decoder.decode(line + b"\n") for line in block.split(b"\n")])
    each = [decoder._line_by_line([line]) for line in split(block) if not line.isspace()]
    agree(decoder.decode(block), each)


FLAT = pa.schema([f for f in SCHEMA if f.name != "m"] + [("count", pa.uint64())])
WIRE = pa.schema([(f.name, pa.string() if pa.types.is_temporal(f.type) else f.type) for f in FLAT])
_numbers = st.integers(-9, 9) | st.sampled_from(
    [
        "-0",
        "0.1",
        "-0.0",
        "1e5",
        "1E-3",
        "12.50",
        "01",
        "1.",
        "1e",
        "0.30000000000000004",
        "1e400",
        "127",
        "128",
    ]
    + [str(2**n + d) for n in (53, 63, 64) for d in (-1, 0, 1)]
    + [str(-(2**63)), "9223372036854775799", "1e22", "1e23", "-1e-22", "123456789012345678e-30"]
)
_texts = st.sampled_from(
    ["", "é", "a\\nb", 'a\\"b', "long enough for eight", "twelve bytes", "\x7f", "{}", "null"]
)
_sevenths = st.fixed_dictionaries(
    {
        "i": st.just("1") | _numbers.map(str),
        "small": st.just("7") | _numbers.map(str),
        "x": st.just("2.5") | _numbers.map(str) | st.floats(allow_nan=False, allow_infinity=False).map(repr),
        "b": st.sampled_from(["true", "false", "true", "null", "tru", "1"]),
        "s": _texts.map(lambda text: f'"{text}"'),
        "d": st.just('"2026-01-02"') | TIMES.map(json.dumps),
        "at": st.just('"2026-01-02T03:04:05Z"') | TIMES.map(json.dumps),
        "wall": st.just('"2026-01-02"'),
        "count": st.just("3") | _numbers.map(str),
    },
    optional={"other": st.sampled_from(["1e999", "null", '"x"', "[1]", "-7", "false", "1x", "-"])},
)
_usual = {"i": "-5", "small": "7", "x": "2.5", "b": "false", "s": '"é"', "d": '"2026-01-02"'} | {
    "at": '"2026-01-02T03:04:05Z"',
    "wall": '"2026-01-02"',
    "count": "3",
    "other": '"not read"',
}


def written(values: dict[str, str], order: Any, space: str, more: str) -> bytes:
    """An object with its columns in some order, and blanks between all parts."""
    pairs = [f'"{name}"{space}:{space}{values[name]}' for name in order(list(values))]
    return f"{{{space}{f'{space},{space}'.join(pairs)}{more}{space}}}".encode()


_written = st.builds(
    written,
    st.just(_usual) | _sevenths.map(lambda some: _usual | some),
    st.sampled_from([list, sorted, lambda names: names[::-1], lambda names: names[1:], lambda names: []]),
    st.sampled_from(["", " ", "\t "]),
    st.sampled_from(["", "", "", ",", ', "i": 1', ', "o": 1', "}"]),
)


@pytest.mark.parametrize("missing", ["null", "error"])
@given(st.lists(_written, min_size=1, max_size=4), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
@example([written(_usual, sorted, " ", "")] * 2, b"\r\n", True)
@example([written(_usual | {"other": "1e999"}, sorted, "", "")], b"\n", False)
def test_json_by_the_kernel_is_json_by_arrow(
    missing: str, lines: list[bytes], ending: bytes, torn: bool
) -> None:
    block = ending.join(lines) + (b"" if torn else ending)
    with tuning.using(json_kernel_bytes=0):
        found = JsonLines(FLAT, missing=missing).decode(block)
    with tuning.using(json_kernel_bytes=1 << 40):
        expected = JsonLines(FLAT, missing=missing).decode(block)
    assert found.data.schema == expected.data.schema
    agree(found, [expected])


@pytest.mark.parametrize("space", ["", " "])
def test_usual_objects_are_read_by_the_kernel(space: str) -> None:
    text = b"\n".join([written(_usual, sorted, space, ""), written(_usual, list, space, "")])
    with tuning.using(json_kernel_bytes=0):
        found = FlatObjects(WIRE).rows(text)
        nested = FlatObjects(WIRE).rows(text.replace(b'"not read"', b"[1]"))
    assert nested is None
    assert found is not None
    assert (
        found.to_pylist()
        == [{name: json.loads(value) for name, value in _usual.items() if name != "other"}] * 2
    )


def test_lines_that_cannot_be_rows_are_left_to_arrow() -> None:
    with tuning.using(json_kernel_bytes=0):
        assert FlatObjects(WIRE).rows(b"\n" * 1000) is None
        assert FlatObjects(pa.schema([])).rows(b"{}") is None
        assert JsonLines(pa.schema([])).decode(b"{}\n{}\n").bad == ()
