-- Pass through: the cost of moving rows.
SELECT auction, bidder, price, date_time, extra
FROM   bid
