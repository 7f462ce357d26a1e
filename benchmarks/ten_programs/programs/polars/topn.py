import polars as pl

bids = pl.read_csv("bids.csv", try_parse_dates=True)
counts = bids.group_by(pl.col("at").dt.truncate("1m").alias("minute"), "bidder").len()
print(counts.group_by("minute").map_groups(lambda group: group.top_k(2, by="len")))
