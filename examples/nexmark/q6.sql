-- Average selling price by seller: over the ten auctions of each seller that were last bid on, their best bid.
WITH winners AS (
       SELECT a.id, a.seller, b.price, b.date_time
       FROM   auction [UNBOUNDED] AS a, bid [UNBOUNDED] AS b
       WHERE  a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
       QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) <= 1)
SELECT seller, avg(price) AS avg_price
FROM  (SELECT seller, price
       FROM   winners
       QUALIFY ROW_NUMBER() OVER (PARTITION BY seller ORDER BY date_time DESC) <= 10) AS latest
GROUP  BY seller
