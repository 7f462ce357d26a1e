import duckdb

duckdb.sql("""SELECT item, time_bucket(INTERVAL 1 MINUTE, "at") AS minute, count(*) AS n
FROM 'bids.parquet' GROUP BY ALL ORDER BY minute""").show()
