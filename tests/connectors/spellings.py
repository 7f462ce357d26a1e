"""Spellings of times, and what each is read as; None: it is not a time. One table for all readers."""

from __future__ import annotations

import datetime as dt
import re

from hypothesis import strategies as st

SPELLINGS: dict[str, str | None] = {
    # Dates, and how far a time may be cut short.
    "2026-01-02": "2026-01-02 00:00:00",
    "2026-01-02T03": "2026-01-02 03:00:00",
    "2026-01-02T03:04": "2026-01-02 03:04:00",
    "2026-01-02T03:04:05": "2026-01-02 03:04:05",
    "2026-01-02 03:04:05": "2026-01-02 03:04:05",
    # Fractions: any number of digits, those after the sixth are cut off.
    "2026-01-02T03:04:05.6": "2026-01-02 03:04:05.600000",
    "2026-01-02T03:04:05.678901": "2026-01-02 03:04:05.678901",
    "2026-01-02T03:04:05.678901999": "2026-01-02 03:04:05.678901",
    "2026-01-02T03:04:05.000000000001Z": "2026-01-02 03:04:05",
    "1969-12-31T23:59:59.9999999": "1969-12-31 23:59:59.999999",
    # Zones.
    "2026-01-02T03:04:05Z": "2026-01-02 03:04:05",
    "2026-01-02 03:04:05Z": "2026-01-02 03:04:05",
    "2026-01-02T03:04:05.5+02": "2026-01-02 01:04:05.500000",
    "2026-01-02T03:04:05+0230": "2026-01-02 00:34:05",
    "2026-01-02T03:04:05+05:45": "2026-01-01 21:19:05",
    "2026-01-02T03:04:05-11:00": "2026-01-02 14:04:05",
    "2026-01-02T03:04Z": "2026-01-02 03:04:00",
    "2026-01-02T03-01": "2026-01-02 04:00:00",
    "2026-03-29T02:30:00": "2026-03-29 02:30:00",  # this hour does not exist in Berlin, but does in UTC
    "2026-10-25T02:30:00+02:00": "2026-10-25 00:30:00",
    "2026-10-25T02:30:00+01:00": "2026-10-25 01:30:00",
    # Blanks beside it.
    " 2026-01-02T03:04:05Z\t": "2026-01-02 03:04:05",
    # The first and the last.
    "0001-01-01T00:00:00Z": "0001-01-01 00:00:00",
    "9999-12-31T23:59:59.999999Z": "9999-12-31 23:59:59.999999",
    "2024-02-29": "2024-02-29 00:00:00",
    # None of these.
    "2026": None,
    "2026-01": None,
    "2026-1-2": None,
    "2026-13-01": None,
    "2026-02-29": None,
    "2100-02-29": None,
    "2026-01-02T": None,
    "2026-01-02T3:04:05": None,
    "2026-01-02T24:00:00": None,
    "2026-01-02T03:60:00": None,
    "2026-01-02T03:04:60": None,
    "2026-01-02T03:04:05.": None,
    "2026-01-02T03:04:05,5": None,
    "2026-01-02T03.5": None,
    "2026-01-02t03:04:05z": None,
    "2026-01-02Z": None,
    "2026-01-02T03:04:05 Z": None,
    "2026-01-02T03:04:05+2": None,
    "2026-01-02T03:04:05+24:00": None,
    "2026-01-02T03:04:05+02:60": None,
    "2026-01-02T03:04:05 UTC": None,
    "2026-01-02T03:04:05 Europe/Berlin": None,
    "2026-01-02  03:04:05": None,
    "20260102T030405Z": None,
    "0000-01-01": None,
    "0001-01-01T00:00:00+00:01": None,
    "9999-12-31T23:59:59-00:01": None,
    "10000-01-01": None,
    "-0001-01-01": None,
    "1767323045": None,
    "now": None,
    "２０２６-01-02": None,
}

_TIME = re.compile(
    r"[ \t]*(\d{4}-\d\d-\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?"
    r"(Z|[+-]\d\d(?::?\d\d)?)?)?[ \t]*",
    re.ASCII,
)


def expected(text: str, wall: bool = False) -> dt.datetime | None:
    """The rule, written down a second time: slowly, with Python's own dates. `wall`: of a TIMESTAMP_NTZ."""
    found = _TIME.fullmatch(text)
    if found is None or (wall and found[6]):
        return None
    date, hour, minute, second, fraction, zone = found.groups()
    micros = (fraction or "")[:6].ljust(6, "0")
    plain = f"{date}T{hour or '00'}:{minute or '00'}:{second or '00'}.{micros}"
    sign = -1 if (zone or "").startswith("-") else 1
    digits = (zone or "").strip("Z+-").replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 23 or int(digits[2:]) > 59:
        return None
    try:
        away = sign * dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        return dt.datetime.fromisoformat(plain) - away
    except (ValueError, OverflowError):
        return None


_two = st.integers(0, 70).map(lambda n: f"{n:02d}")
_dates = st.dates().map(str) | st.builds("{:04d}-{}-{}".format, st.integers(0, 9999), _two, _two)
_fractions = st.text("0123456789", max_size=12).map(lambda digits: f".{digits}" if digits else "")
_clocks = st.times().map(lambda t: t.strftime("%H:%M:%S")) | st.builds("{}:{}:{}".format, _two, _two, _two)
_cut = st.sampled_from([2, 3, 5, 8, 8, 8])
_zones = st.sampled_from(["", "", "Z", "+00", "-00:00", "z", " UTC"]) | st.builds(
    "{}{}{}{}".format, st.sampled_from("+-"), _two, st.sampled_from([":", ""]), _two
)
_whole = st.builds(
    lambda date, between, clock, cut, fraction, zone: (
        date + between + clock[:cut] + (fraction if cut == 8 else "") + zone
    ),
    _dates,
    st.sampled_from("TTT  t\t"),
    _clocks,
    _cut,
    _fractions,
    _zones,
)


def _wounded(text: str, at: int, sign: str) -> str:
    at %= len(text) + 1
    return text[:at] + sign + text[at + 1 :]


TIMES = (
    st.sampled_from(sorted(SPELLINGS))
    | _whole
    | _dates
    | st.builds(
        _wounded, _whole, st.integers(0, 40), st.sampled_from(["", " ", "0", "9", ":", "-", "T", "é"])
    )
)
"""Texts of which about half are times, and many are nearly so."""
