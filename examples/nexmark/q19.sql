-- Auction top 10: the ten highest bids on each auction, with their rank.
SELECT *
FROM  (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
       FROM   bid [UNBOUNDED]) AS ranked
WHERE  rank_number <= 10
