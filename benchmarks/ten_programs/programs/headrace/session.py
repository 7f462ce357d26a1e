import headrace

text = "SELECT user, count(*) AS n FROM clicks [SESSION 30 SECONDS] GROUP BY user"
headrace.sql(text, clicks="clicks.csv").show()
