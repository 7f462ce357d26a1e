import duckdb


def band(price: float) -> str:
    return "low" if price < 30 else "high"


duckdb.create_function("band", band)
duckdb.sql("""SELECT band(price) AS band, time_bucket(INTERVAL 1 MINUTE, "at") AS minute, count(*) AS n
FROM 'bids.csv' GROUP BY ALL ORDER BY minute""").show()
