"""The NEXMark generator: an event from its number alone, the laws of NEXMark, arrivals apart from times."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.nexmark import STREAMS, Laws, NexmarkGenerator, Rows, Silence
from headrace.errors import InputError

SECOND = 1_000_000
MANY = 20_000

PINNED = [
    {"auction": 60950, "bidder": 21001, "price": 1881, "channel": "channel-8799"},
    {"auction": 60949, "bidder": 21001, "price": 5751729, "channel": "channel-3180"},
]
PINNED_NAME = ["deiter smith"]


def together(parts: list[dict[str, Rows]]) -> dict[str, pa.Table]:
    return {
        stream: pa.Table.from_batches([part[stream].data for part in parts], STREAMS[stream].schema)
        for stream in STREAMS
    }


@given(
    st.lists(st.integers(0, 3000), max_size=4).map(sorted),
    st.sampled_from([1, 7, 100]),
    st.integers(0, 5),
)
def test_events_do_not_depend_on_how_many_are_asked_for(cuts: list[int], disorder: int, seed: int) -> None:
    house = NexmarkGenerator(seed=seed, disorder=disorder, delayed=0.1)
    whole = house.batches(0, 3000)
    parts = [house.batches(a, b - a) for a, b in pairwise([0, *cuts, 3000])]
    assert together(parts) == together([whole])
    for stream, rows in whole.items():
        for what in ("times", "arrivals", "positions"):
            joined = np.concatenate([getattr(part[stream], what) for part in parts])
            assert np.array_equal(joined, getattr(rows, what))


def test_seeds_differ_and_a_seed_does_not() -> None:
    made = [NexmarkGenerator(seed=seed).batches(0, 1000)["bid"].data for seed in (1, 1, 2)]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_an_event_is_what_it_was_when_this_was_written() -> None:
    """A seed means the same events in every version: benchmarks of two versions see the same rows."""
    rows = NexmarkGenerator(seed=7).batches(10**6, 50)
    assert (
        rows["bid"].data.select(["auction", "bidder", "price", "channel"]).slice(3, 2).to_pylist() == PINNED
    )
    assert rows["person"].data["name"].to_pylist() == PINNED_NAME


def test_of_fifty_events_one_is_a_person_three_are_auctions_the_rest_bids() -> None:
    rows = NexmarkGenerator().batches(150, 50)
    assert {stream: len(each) for stream, each in rows.items()} == {"person": 1, "auction": 3, "bid": 46}
    assert [rows[s].positions[0] - 150 for s in STREAMS] == [0, 1, 4]
    assert rows["person"].data["id"].to_pylist() == [1003]
    assert rows["auction"].data["id"].to_pylist() == [1009, 1010, 1011]


def test_times_are_base_plus_number_times_delay_in_milliseconds() -> None:
    house = NexmarkGenerator(rate=3000)
    rows = house.batches(0, 500)
    for each in rows.values():
        expected = house.laws.base + each.positions * SECOND // 3000 // 1000 * 1000
        assert np.array_equal(each.times, expected)
        assert np.array_equal(each.data["date_time"].cast(pa.int64()).to_numpy(), each.times)
        assert np.array_equal(each.arrivals, each.times)


def test_a_rate_goes_before_that_of_the_laws() -> None:
    assert NexmarkGenerator().laws.rate == 10_000
    assert NexmarkGenerator(laws=Laws(rate=5)).laws.rate == 5
    assert NexmarkGenerator(rate=7, laws=Laws(rate=5, in_flight=3)).laws == Laws(rate=7, in_flight=3)


@pytest.mark.parametrize("rate", [0.5, 3, 999.5, 10_000, 2_000_000])
def test_the_first_event_at_a_time(rate: float) -> None:
    laws = Laws(rate=rate)
    for number in (0, 1, 2, 17, 12_345):
        time = int(laws.times(np.array([number]))[0])
        first = laws.first_at(time)
        times = laws.times(np.array([max(0, first - 1), first, first + 1]))
        assert times[1] >= time
        assert first == 0 or times[0] < time


def test_hot_choices_have_their_shares() -> None:
    rows = NexmarkGenerator(seed=3).batches(500_000, MANY)
    bids, auctions = rows["bid"], rows["auction"]
    newest = bids.positions // 50 * 3 + 2
    hot = bids.data["auction"].to_numpy() == 1000 + newest // 100 * 100
    assert abs(hot.mean() - 1 / 2) < 0.02
    second = bids.data["bidder"].to_numpy() == 1001 + bids.positions // 50 // 100 * 100
    assert abs(second.mean() - 3 / 4) < 0.02
    seller = auctions.data["seller"].to_numpy() == 1000 + auctions.positions // 50 // 100 * 100
    assert abs(seller.mean() - 3 / 4) < 0.05
    ordinary = bids.data["auction"].to_numpy()[~hot] - 1000
    assert ((ordinary >= newest[~hot] - 100) & (ordinary <= newest[~hot] + 10)).all()
    assert (ordinary > newest[~hot]).any(), "ids not yet created may be referred to"


def test_columns_have_values_as_in_nexmark() -> None:
    rows = {stream: each.data for stream, each in NexmarkGenerator(seed=3).batches(0, MANY).items()}
    assert {stream: each.schema for stream, each in rows.items()} == {
        stream: of.schema for stream, of in STREAMS.items()
    }
    assert all(each.column(i).null_count == 0 for each in rows.values() for i in range(each.num_columns))
    assert set(rows["person"]["state"].to_pylist()) == {"az", "ca", "id", "or", "wa", "wy"}
    assert set(rows["auction"]["category"].to_pylist()) == {10, 11, 12, 13, 14}
    price = rows["bid"]["price"].to_numpy()
    assert price.min() >= 100
    assert price.max() <= 10**8
    assert abs(np.median(np.log10(price)) - 5) < 0.1, "10^(6u) × 100"
    assert pc.all(pc.greater(rows["auction"]["expires"], rows["auction"]["date_time"])).as_py()
    assert pc.all(pc.greater(rows["auction"]["reserve"], rows["auction"]["initial_bid"])).as_py()
    lengths = pc.utf8_length(rows["bid"]["extra"]).to_numpy()
    assert (lengths.min(), lengths.max()) == (54, 81)
    row = rows["person"].slice(5, 1).to_pylist()[0]
    assert re.fullmatch(r"[a-z ]{1,6}@[a-z ]{1,4}\.com", row["email_address"])
    assert re.fullmatch(r"\d{4} \d{4} \d{4} \d{4}", row["credit_card"])
    sizes = pc.utf8_length(rows["auction"]["item_name"]).to_numpy()
    assert 1 <= sizes.min() < 4
    assert sizes.max() == 19


def test_channels_and_urls_belong_together() -> None:
    bids = NexmarkGenerator(seed=3).batches(0, MANY)["bid"].data
    pairs = dict(zip(bids["channel"].to_pylist(), bids["url"].to_pylist(), strict=True))
    assert {"Google", "Facebook", "Baidu", "Apple"} <= set(pairs)
    hot = pc.is_in(bids["channel"], value_set=pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert abs(np.mean(hot.to_numpy(zero_copy_only=False)) - 1 / 2) < 0.02
    form = re.compile(
        r"https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\.htm\?query=1(&channel_id=\d+)?"
    )
    assert all(form.fullmatch(url) for url in pairs.values())
    with_id = [url for channel, url in pairs.items() if channel.startswith("channel-")]
    assert abs(np.mean(["channel_id" in url for url in with_id]) - 9 / 10) < 0.03
    assert len(set(pairs.items())) == len(
        set(zip(*(bids[c].to_pylist() for c in ("channel", "url")), strict=True))
    )


def test_disorder_scatters_inside_groups_and_changes_no_event() -> None:
    ordered, scattered = (NexmarkGenerator(seed=1, disorder=n).batches(0, 1001) for n in (1, 77))
    for stream in STREAMS:
        rows = scattered[stream]
        assert sorted(rows.times) == sorted(ordered[stream].times)
        assert not np.array_equal(rows.times, ordered[stream].times)
        assert (rows.arrivals >= rows.times).all(), "no event arrives before it has happened"
        assert (np.diff(rows.arrivals) >= 0).all()
        as_text = [set(map(str, each[stream].data.to_pylist())) for each in (ordered, scattered)]
        assert as_text[0] == as_text[1]


def test_the_law_of_disorder() -> None:
    house = NexmarkGenerator(disorder=77)
    positions = np.arange(500)
    assert [p // 77 * 77 + p * 953 % 77 for p in range(500)] == house.arrival.numbers(positions).tolist()
    times = house.laws.times(house.arrival.numbers(positions))
    assert all(times[p:].min() >= house.promised(p) for p in range(0, 400, 13))


def test_delayed_rows_arrive_by_instant_and_none_is_lost() -> None:
    house = NexmarkGenerator(seed=2, rate=1000, disorder=10, delayed=0.1, delay=SECOND)
    base = house.laws.base
    whole = house.batches(0, 5000)
    late = whole["bid"].arrivals - house.laws.times(whole["bid"].positions) > house.arrival.slack
    assert abs(late.mean() - 0.1) < 0.02
    parts = [house.arriving(base + k * SECOND // 4, base + (k + 1) * SECOND // 4) for k in range(40)]
    for stream, rows in whole.items():
        found = np.concatenate([part[stream].arrivals for part in parts])
        assert (np.diff(found) >= 0).all()
        places = np.concatenate([part[stream].positions for part in parts])
        assert len(set(places)) == len(places)
        assert set(rows.positions) <= set(places)


def test_a_silent_stream_loses_its_rows_or_holds_them() -> None:
    quiet = Silence("auction", 2 * SECOND, 3 * SECOND)
    lost = NexmarkGenerator(rate=1000, silences=(quiet,))
    base, whole = lost.laws.base, NexmarkGenerator(rate=1000).batches(0, 5000)
    rows = lost.batches(0, 5000)
    assert len(rows["bid"]) == len(whole["bid"])
    inside = (rows["auction"].arrivals >= base + 2 * SECOND) & (rows["auction"].arrivals < base + 3 * SECOND)
    assert not inside.any()
    assert len(rows["auction"]) == len(whole["auction"]) - 60
    held = NexmarkGenerator(rate=1000, silences=(Silence("auction", 2 * SECOND, 3 * SECOND, held=True),))
    assert len(held.arriving(base + 2 * SECOND, base + 3 * SECOND)["auction"]) == 0
    burst = held.arriving(base + 3 * SECOND, base + 3 * SECOND + 1)["auction"]
    assert len(burst) >= 60
    assert burst.times.min() < base + 2 * SECOND + SECOND // 10


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 0},
        {"disorder": 0},
        {"disorder": 953},
        {"delayed": 1.5},
        {"silences": (Silence("bids", 0, 1),)},
        {"laws": lambda: Laws(hot_auctions=0)},
        {"laws": lambda: Laws(bid_bytes=10_000)},
        {"silences": lambda: (Silence("bid", 3, 3),)},
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match="HR-I110"):
        NexmarkGenerator(**{name: each() if callable(each) else each for name, each in wrong.items()})  # type: ignore[arg-type]


@given(st.data())
def test_the_skew_is_a_bound_of_every_stream_on_every_other(data: st.DataObject) -> None:
    """Whatever has arrived with time τ, all that comes later has a time > τ − skew."""
    held = Silence(data.draw(st.sampled_from(list(STREAMS))), SECOND // 2, SECOND, held=True)
    house = NexmarkGenerator(
        seed=data.draw(st.integers(0, 9)),
        rate=data.draw(st.sampled_from([7, 333, 1000, 10_000])),
        disorder=data.draw(st.sampled_from([1, 2, 13, 100])),
        delayed=data.draw(st.sampled_from([0.0, 0.1, 1.0])),
        delay=data.draw(st.sampled_from([1000, SECOND])),
        silences=data.draw(st.sampled_from([(), (held,)])),
    )
    rows = house.batches(0, 1500).values()
    arrivals, times = (np.concatenate([getattr(r, what) for r in rows]) for what in ("arrivals", "times"))
    order = np.argsort(arrivals, kind="stable")
    arrivals, times = arrivals[order], times[order]
    before = np.maximum.accumulate(times)[np.maximum(np.searchsorted(arrivals, arrivals) - 1, 0)]
    later = np.searchsorted(arrivals, arrivals) > 0
    assert (times[later] > before[later] - house.skew).all()
    assert (arrivals >= times).all()
