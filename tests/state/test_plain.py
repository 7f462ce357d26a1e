"""Plain values: what is written is read back, of the same type; what is not plain is refused."""

from __future__ import annotations

import os
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headrace.errors import GraphError
from headrace.state import plain
from headrace.state.part import decode, encode
from headrace.state.promises import Agreement, Held, from_bytes, from_plain, to_bytes, to_plain
from headrace.time.punctuation import Between, Constant, OneOf, Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

ZONES = st.sampled_from(
    [
        None,
        UTC,
        ZoneInfo("Europe/Berlin"),
        ZoneInfo("America/St_Johns"),
        timezone(timedelta(hours=-3, seconds=7)),
    ]
)
HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 5000), 1 << 5000),
    st.floats(allow_nan=False),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes(timezones=ZONES),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.complex_numbers(allow_nan=False),
)
KEYS = st.one_of(HASHABLE, st.tuples(HASHABLE, HASHABLE), st.frozensets(HASHABLE, max_size=3))
FACTORIES = st.sampled_from([int, list, None])
VALUES = st.recursive(
    KEYS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(HASHABLE, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(Counter),
        st.builds(defaultdict, FACTORIES, st.dictionaries(KEYS, inner, max_size=3)),
        st.builds(deque, st.lists(inner, max_size=3), st.none() | st.integers(0, 5)),
        st.binary().map(bytearray),
    ),
    max_leaves=8,
)
DTYPES = (
    arrays.scalar_dtypes() | arrays.byte_string_dtypes(max_len=4) | arrays.unicode_string_dtypes(max_len=4)
)
ARRAYS = DTYPES.flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, min_side=0, max_side=4))
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, deque)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    return bool(a == b)


@given(VALUES)
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    found = plain.loads(plain.dumps(value))
    assert same(found, value)
    if isinstance(value, deque):
        assert found.maxlen == value.maxlen
    if isinstance(value, defaultdict):
        assert found.default_factory is value.default_factory


@given(ARRAYS)
def test_an_array_comes_back_as_it_was(array: Any) -> None:
    found = plain.loads(plain.dumps(array))
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "value",
    [
        np.int64(7),
        np.float32(0.5),
        np.bool_(True),
        np.datetime64("2026-11-17T10:00", "us"),
        np.array(["a", None, [1, 2]], object),
        pa.array([1, None, 3]),
        pa.array(["a", "b"]).dictionary_encode(),
        pa.chunked_array([[1, 2], [3]]),
        pa.table({"a": [1, 2], "b": ["x", None]}),
        pa.RecordBatch.from_pydict({"a": [1, 2]}),
        pa.RecordBatch.from_pylist([], pa.schema([("a", pa.int64())])),
        pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
        pa.scalar(None, pa.decimal128(10, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numpy_and_arrow_data_come_back_as_they_were(value: Any) -> None:
    found = plain.loads(plain.dumps(value))
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert found.tolist() == value.tolist()
        assert found.dtype == value.dtype
    elif isinstance(value, (np.generic, pa.Scalar)):
        assert found == value
        assert getattr(found, "dtype", None) == getattr(value, "dtype", None)
    else:
        assert found.equals(value)


@dataclass
class Own:
    """An object of a class of the user's."""

    number: int = 1


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


NOT_PLAIN = [
    Own(),
    [{"deep": Own()}],
    Own,
    len,
    lambda: 0,
    object(),
    circle(),
    defaultdict(Own),
    np.zeros(2, [("a", "i4"), ("b", "f8")]),
    np.array([Own()], object),
    type("Named", (int,), {})(3),
]


@pytest.mark.parametrize("value", NOT_PLAIN, ids=lambda value: type(value).__name__)
def test_what_is_not_plain_is_refused_when_it_is_written(value: Any) -> None:
    with pytest.raises(plain.NotPlain):
        plain.dumps(value)


@given(st.binary())
def test_bytes_that_nobody_wrote_are_a_plain_value_or_an_error(data: bytes) -> None:
    try:
        found = plain.loads(data)
    except plain.Malformed:
        return
    again = plain.dumps(found)
    assert plain.dumps(plain.loads(again)) == again


@given(VALUES, st.data())
def test_a_changed_byte_gives_another_plain_value_or_an_error(value: Any, data: st.DataObject) -> None:
    written = bytearray(plain.dumps(value))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = plain.loads(bytes(written))
    except plain.Malformed:
        return
    again = plain.dumps(found)
    assert plain.dumps(plain.loads(again)) == again


class Passenger:
    """What runs when a pickle of it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    evil = pickle.dumps(Passenger(tmp_path / "ran"))
    with pytest.raises(plain.Malformed):
        plain.loads(evil)
    with pytest.raises(GraphError, match="HR-G020"):
        from_bytes(np.frombuffer(evil, np.uint8))
    with pytest.raises(ValueError, match="an array of"):
        decode(encode({"a": np.zeros(1)}).replace(b"<f8", b"|O8"))
    assert not (tmp_path / "ran").exists()


# --- punctuations

PATTERNS = st.one_of(
    st.builds(Constant, HASHABLE),
    st.builds(OneOf, st.lists(HASHABLE, max_size=4).map(tuple)),
    st.builds(Between, HASHABLE, HASHABLE),
)
PUNCTUATIONS = st.builds(
    Punctuation,
    st.integers(MIN_TIME, MAX_TIME),
    st.lists(st.tuples(st.text(), PATTERNS), max_size=3).map(tuple),
)


@given(PUNCTUATIONS)
def test_a_punctuation_comes_back_as_it_was(punctuation: Punctuation) -> None:
    found = from_plain(from_bytes(to_bytes(to_plain(punctuation))))
    assert found == punctuation
    assert all(
        same(vars(a), vars(b)) for (_, a), (_, b) in zip(found.patterns, punctuation.patterns, strict=True)
    )


@given(st.lists(st.tuples(st.integers(0, 1), PUNCTUATIONS), max_size=5))
def test_promises_that_wait_come_back_as_they_were(made: list[tuple[int, Punctuation]]) -> None:
    agreement, held = Agreement(2), Held()
    for input, punctuation in made:
        agreement.make(input, punctuation)
        held.hold(input, punctuation)
    other, later = Agreement(2), Held()
    other.apply(decode(encode(agreement.changes(True))))
    later.apply(decode(encode(held.changes(True))))
    assert later.take(5) == held.take(5)
    assert len(other) == len(agreement)
    assert [other.make(1 - i, p) for i, p in made] == [agreement.make(1 - i, p) for i, p in made]


def test_a_pattern_that_is_not_plain_is_refused_in_words() -> None:
    with pytest.raises(GraphError, match="HR-G019"):
        to_bytes(to_plain(Punctuation(patterns=(("k", Constant(Own())),))))
