import polars as pl

minute = pl.col("at").dt.truncate("1m").alias("minute")
offers = pl.read_csv("offers.csv", try_parse_dates=True).with_columns(minute)
sales = pl.read_csv("sales.csv", try_parse_dates=True).with_columns(minute)
print(offers.join(sales, on=["item", "minute"]).select("item", "price", "amount"))
