import polars as pl

bids = pl.read_csv("bids.csv", try_parse_dates=True)
print(bids.group_by("item", pl.col("at").dt.truncate("1m")).len())
