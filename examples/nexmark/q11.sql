-- User sessions: how many bids each bidder makes without a pause of more than 10 seconds.
SELECT bidder, count(*) AS bid_count,
       timestamp_micros(window_start) AS starttime, timestamp_micros(window_end) AS endtime
FROM   bid [SESSION 10 SECONDS]
GROUP  BY bidder
