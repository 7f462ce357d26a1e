-- Expand bid with auction: the bids on auctions of category 10, with the auction.
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
       a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS opened, a.expires,
       a.seller, a.category, a.extra AS auction_extra
FROM   bid [UNBOUNDED] AS b
JOIN   auction [UNBOUNDED] AS a ON b.auction = a.id
WHERE  a.category = 10
