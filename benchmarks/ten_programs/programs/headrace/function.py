import headrace


@headrace.register_function("band", scalar=True)
def band(price: float) -> str:
    return "low" if price < 30 else "high"


text = """SELECT band, count(*) AS n
FROM (SELECT band(price) AS band FROM bids) [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY band"""
headrace.sql(text, bids="bids.csv").show()
