import duckdb

duckdb.sql("""SELECT "user", lag(place) OVER of_user AS failed, place AS entered
FROM 'logins.csv' WINDOW of_user AS (PARTITION BY "user" ORDER BY "at")
QUALIFY ok = 'yes' AND lag(ok) OVER of_user = 'no'
AND "at" - lag("at") OVER of_user < INTERVAL 10 SECOND""").show()
