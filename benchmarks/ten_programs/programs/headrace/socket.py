import sys

import headrace

text = "SELECT item, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
bids = {"type": "tcp", "host": "127.0.0.1", "port": int(sys.argv[1])}
columns = {"bids": "item STRING, bidder STRING, price DOUBLE, at TIMESTAMP"}
for batch in headrace.run(text, bids=bids, schema=columns):
    batch.show()
