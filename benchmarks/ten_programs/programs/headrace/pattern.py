import headrace

text = """SELECT a.user, a.place AS failed, b.place AS entered
FROM SEQ(logins AS a, logins AS b) CONSECUTIVE PARTITION BY user WITHIN 10 SECONDS STRICT
WHERE a.ok = 'no' AND b.ok = 'yes'"""
headrace.sql(text, logins="logins.csv").show()
