import polars as pl

clicks = pl.read_csv("clicks.csv", try_parse_dates=True).sort("at")
new = (pl.col("at").diff() > pl.duration(seconds=30)).fill_null(True).over("user").alias("new")
clicks = clicks.with_columns(new)
clicks = clicks.with_columns(pl.col("new").cum_sum().over("user").alias("session"))
print(clicks.group_by("user", "session").len())
