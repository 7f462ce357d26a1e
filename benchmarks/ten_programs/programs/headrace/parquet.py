import headrace

text = "SELECT item, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
headrace.sql(text, bids="bids.parquet").show()
