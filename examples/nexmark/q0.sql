-- Pass through: what it costs to move the rows.
SELECT auction, bidder, price, date_time, extra
FROM   bid
