import polars as pl


def band(price: float) -> str:
    return "low" if price < 30 else "high"


bids = pl.read_csv("bids.csv", try_parse_dates=True)
bands = pl.col("price").map_elements(band, return_dtype=pl.String).alias("band")
print(bids.group_by(bands, pl.col("at").dt.truncate("1m")).len())
