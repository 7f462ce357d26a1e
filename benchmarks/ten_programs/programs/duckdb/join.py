import duckdb

duckdb.sql("""SELECT o.item, o.price, s.amount
FROM 'offers.csv' AS o JOIN 'sales.csv' AS s ON o.item = s.item
AND time_bucket(INTERVAL 1 MINUTE, o."at") = time_bucket(INTERVAL 1 MINUTE, s."at")""").show()
