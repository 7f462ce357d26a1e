-- Winning bids: the highest bid on each auction; the first one if several are equal.
SELECT a.id, a.item_name, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category, a.extra,
       b.auction, b.bidder, b.price, b.date_time AS bid_date_time, b.extra AS bid_extra
FROM   auction [UNBOUNDED] AS a, bid [UNBOUNDED] AS b
WHERE  a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
QUALIFY ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) <= 1
