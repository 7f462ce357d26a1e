import polars as pl

bids = pl.read_parquet("bids.parquet")
print(bids.group_by("item", pl.col("at").dt.truncate("1m")).len())
