-- Last bid: the newest bid of each bidder on each auction.
SELECT auction, bidder, price, channel, url, date_time, extra
FROM   bid [PARTITION BY bidder, auction ROWS 1]
