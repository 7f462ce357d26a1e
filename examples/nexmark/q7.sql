-- Highest bid: the highest bids of each 10 seconds.
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM   bid [RANGE 10 SECONDS SLIDE 10 SECONDS] AS b,
       (SELECT max(price) AS maxprice FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS]) AS highest
WHERE  b.price = highest.maxprice
