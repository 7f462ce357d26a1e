import polars as pl

logins = pl.read_csv("logins.csv", try_parse_dates=True).sort("at")
before = pl.all().exclude("user").shift().over("user").name.prefix("before_")
found = logins.with_columns(before).filter(
    pl.col("ok") == "yes",
    pl.col("before_ok") == "no",
    pl.col("at") - pl.col("before_at") < pl.duration(seconds=10),
)
print(found.select("user", "before_place", "place"))
