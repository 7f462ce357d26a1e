import headrace

text = """SELECT bidder, count(*) AS n FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE]
GROUP BY bidder ORDER BY n DESC LIMIT 2"""
headrace.sql(text, bids="bids.csv").show()
