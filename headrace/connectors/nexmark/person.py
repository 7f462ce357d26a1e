"""Persons: who registers with the house."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.nexmark.draws import Bits, Numbers, below, draw, high, key, low
from headrace.connectors.nexmark.laws import FIRST_ID, Laws, last_person
from headrace.connectors.nexmark.text import extra, name, pool

SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("email_address", pa.string()),
        ("credit_card", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("date_time", pa.timestamp("us")),
        ("extra", pa.string()),
    ]
)
FIRST_NAMES: Final = [
    "peter",
    "paul",
    "luke",
    "john",
    "saul",
    "vicky",
    "kate",
    "julie",
    "sarah",
    "deiter",
    "walter",
]
LAST_NAMES: Final = ["shultz", "abrams", "spencer", "white", "bartels", "walton", "smith", "jones", "noris"]
NAMES: Final = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
CITIES: Final = pa.array(
    [
        "phoenix",
        "los angeles",
        "san francisco",
        "boise",
        "portland",
        "bend",
        "redmond",
        "seattle",
        "kent",
        "cheyenne",
    ]
)
STATES: Final = pa.array(["az", "ca", "id", "or", "wa", "wy"])
FOUR_DIGITS: Final = pa.array([f"{number:04}" for number in range(10_000)])


def persons(seed: int, laws: Laws, numbers: Numbers, times: Numbers) -> pa.RecordBatch:
    """The persons that the events `numbers` are."""
    who, mail, card, rest = (
        draw(key(seed, f"person {what}"), numbers) for what in ("who", "mail", "card", "rest")
    )
    spaced = pool(seed, " ")
    email = pc.binary_join_element_wise(
        name(spaced, mail, 7), pc.binary_join_element_wise(name(spaced, _turned(mail), 5), ".com", ""), "@"
    )
    digits = [_one_of(FOUR_DIGITS, bits) for bits in (low(card), high(card), low(rest), high(who))]
    columns = {
        "name": _one_of(NAMES, low(who)),
        "email_address": email,
        "credit_card": pc.binary_join_element_wise(*digits, " "),
        "city": _one_of(CITIES, low(_turned(who))),
        "state": _one_of(STATES, high(rest)),
    }
    used = 8 + sum(pc.binary_length(each).to_numpy() for each in columns.values())
    filling = extra(pool(seed), draw(key(seed, "person extra"), numbers), used, laws.person_bytes)
    made = [pa.array(FIRST_ID + last_person(numbers)), *columns.values(), _timestamps(times), filling]
    return pa.RecordBatch.from_arrays(made, schema=SCHEMA)


def _turned(bits: Bits) -> Bits:
    """The same 64 bits in another order: as good as new where only a few were used."""
    return (bits << np.uint64(23)) | (bits >> np.uint64(41))


def _one_of(values: pa.Array, bits32: Bits) -> pa.Array:
    return values.take(pa.array(below(bits32, len(values))))


def _timestamps(times: Numbers) -> pa.Array:
    return pa.array(times).view(pa.timestamp("us"))
