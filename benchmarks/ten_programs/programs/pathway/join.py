from datetime import timedelta

import pathway as pw


class Offer(pw.Schema):
    item: str
    price: float
    at: str


class Sale(pw.Schema):
    item: str
    amount: int
    at: str


at = pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ")
offers = pw.io.csv.read("offers.csv", schema=Offer, mode="static").with_columns(at=at)
sales = pw.io.csv.read("sales.csv", schema=Sale, mode="static").with_columns(at=at)
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
pairs = offers.window_join(sales, offers.at, sales.at, minute, offers.item == sales.item)
pw.debug.compute_and_print(pairs.select(offers.item, offers.price, sales.amount))
