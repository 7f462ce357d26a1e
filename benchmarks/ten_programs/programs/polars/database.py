import sqlite3

import polars as pl

bids = pl.read_database("SELECT * FROM bids", sqlite3.connect("shop.db"))
at = pl.col("at").str.to_datetime(time_zone="UTC")
print(bids.group_by("item", at.dt.truncate("1m")).len())
