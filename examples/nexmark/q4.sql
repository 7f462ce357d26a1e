-- Average price for a category: the mean over its auctions of the highest bid in time.
SELECT q.category, avg(q.final) AS avg
FROM  (SELECT max(b.price) AS final, a.category
       FROM   auction [UNBOUNDED] AS a, bid [UNBOUNDED] AS b
       WHERE  a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
       GROUP  BY a.id, a.category) AS q
GROUP  BY q.category
