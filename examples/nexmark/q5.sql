-- Hot items: the auctions with the most bids in the last 10 seconds, every 2 seconds.
WITH counts AS (
       SELECT auction, count(*) AS num, window_end AS endtime
       FROM   bid [RANGE 10 SECONDS SLIDE 2 SECONDS]
       GROUP  BY auction)
SELECT c.auction, c.num, timestamp_micros(c.endtime) AS endtime
FROM   counts AS c, (SELECT max(num) AS maxn FROM counts) AS most
WHERE  c.num >= most.maxn
