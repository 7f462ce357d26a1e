import sqlite3

import duckdb
import pandas as pd

bids = pd.read_sql("SELECT * FROM bids", sqlite3.connect("shop.db"))
duckdb.sql("""SELECT item, time_bucket(INTERVAL 1 MINUTE, "at"::TIMESTAMPTZ) AS minute, count(*) AS n
FROM bids GROUP BY ALL ORDER BY minute""").show()
