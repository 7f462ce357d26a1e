import duckdb

duckdb.sql("""WITH begun AS (
    SELECT "user", "at", coalesce("at" - lag("at") OVER of_user > INTERVAL 30 SECOND, true) AS new
    FROM 'clicks.csv' WINDOW of_user AS (PARTITION BY "user" ORDER BY "at")
), numbered AS (
    SELECT "user", sum(new::INT) OVER (PARTITION BY "user" ORDER BY "at") AS session FROM begun
)
SELECT "user", session, count(*) AS n FROM numbered GROUP BY ALL""").show()
