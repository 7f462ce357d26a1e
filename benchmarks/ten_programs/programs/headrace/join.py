import headrace

text = """SELECT o.item, o.price, s.amount
FROM offers [RANGE 1 MINUTE SLIDE 1 MINUTE] AS o, sales [RANGE 1 MINUTE SLIDE 1 MINUTE] AS s
WHERE o.item = s.item"""
headrace.sql(text, offers="offers.csv", sales="sales.csv").show()
