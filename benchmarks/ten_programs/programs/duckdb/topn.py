import duckdb

duckdb.sql("""SELECT bidder, time_bucket(INTERVAL 1 MINUTE, "at") AS minute, count(*) AS n
FROM 'bids.csv' GROUP BY bidder, minute
QUALIFY row_number() OVER (PARTITION BY minute ORDER BY n DESC) <= 2 ORDER BY minute, n DESC""").show()
