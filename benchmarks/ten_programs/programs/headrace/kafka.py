import sys

import headrace

text = "SELECT item, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
bids = {"type": "kafka", "servers": sys.argv[1], "topic": "bids"}
columns = {"bids": "item STRING, bidder STRING, price DOUBLE, at TIMESTAMP"}
for batch in headrace.run(text, bids=bids, schema=columns):
    batch.show()
