import sqlite3

import headrace

database = sqlite3.connect("shop.db")
database.row_factory = sqlite3.Row
bids = [dict(row) for row in database.execute("SELECT * FROM bids")]
text = "SELECT item, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
headrace.sql(text, bids=bids, time="at").show()
