"""What is wrong with a text: the code, the place under the carets, the hint."""

from __future__ import annotations

import re

import pytest

from headrace.errors import HeadraceError, SqlError
from headrace.sql import Code, query
from tests.sql.running import STREAMS

CASES = [
    # text, code, what the carets are under, a part of the hint
    ("SELECT item FROM bids WHERE", Code.SYNTAX, "WHERE", ""),
    ("SELECT item, FROM bids", Code.SYNTAX, "FROM", ""),
    ("SELECT headrace_window() FROM bids", Code.QUALITY_COLUMN, "headrace_window()", "RANGE MIN"),
    ("SELECT FROM bids", Code.SYNTAX, "FROM", ""),
    ("SELECT (item FROM bids", Code.SYNTAX, "FROM", ""),
    ("SELECT 'item FROM bids", Code.SYNTAX, None, "quote"),
    ("SELECT item FROM bids WHERE price BETWEEN 1 5", Code.SYNTAX, "5", "AND"),
    ("SELECT a.item FROM bids [NOW] AS a JOIN bids [NOW] AS b ON", Code.SYNTAX, "ON", "a.k = b.k"),
    ("SELECT a.item FROM bids [NOW] AS a JOIN bids [NOW] AS b ON WHERE true", Code.SYNTAX, "ON", "a.k = b.k"),
    ("SELECT item FROM bids WHERE item IN ()", Code.SYNTAX, "item IN (", "IN (1, 2, 3)"),
    ("SELECT CASE END FROM bids", Code.SYNTAX, "END", ""),
    ("CREATE STREAM s a INT", Code.SYNTAX, "a", ""),
    ("CREATE VIEW v SELECT 1", Code.SYNTAX, "SELECT", ""),
    ("SELECT item FROM bids ORDER BY item", Code.ORDER_LIMIT, "item", "order of time"),
    ("SELECT item FROM bids LIMIT 3", Code.ORDER_LIMIT, "3", "[ROWS n]"),
    ("SELECT item FROM bids ORDER BY item LIMIT 0", Code.ORDER_LIMIT, "0", "10"),
    ("SELECT item FROM bids ORDER BY item LIMIT price", Code.ORDER_LIMIT, "price", "10"),
    ("SELECT item FROM bids ORDER BY 3 LIMIT 2", Code.GROUP_POSITION, "3", "1 columns"),
    ("SELECT item FROM bids ORDER BY prise LIMIT 2", Code.UNKNOWN_COLUMN, "prise", "price"),
    ("SELECT DISTINCT item FROM bids ORDER BY price LIMIT 2", Code.OVER, "price", "subquery"),
    ("SELECT item, ROW_NUMBER() OVER (ORDER BY item) n FROM bids", Code.UNBOUNDED_NUMBER, None, "QUALIFY"),
    (
        "SELECT * FROM (SELECT item, ROW_NUMBER() OVER (ORDER BY item) n FROM bids) WHERE n > 3",
        Code.UNBOUNDED_NUMBER,
        None,
        "WHERE number <= 10",
    ),
    (
        "SELECT item FROM bids [NOW] QUALIFY ROW_NUMBER() OVER (PARTITION BY item) < 3",
        Code.OVER,
        "ROW_NUMBER() OVER (PARTITION BY item)",
        "ORDER BY",
    ),
    ("SELECT item FROM bids QUALIFY item < 3", Code.OVER, "item < 3", "QUALIFY ROW_NUMBER()"),
    ("SELECT item FROM bids QUALIFY ROW_NUMBER() OVER (ORDER BY item) = 3", Code.OVER, None, "subquery"),
    ("SELECT item FROM bids QUALIFY ROW_NUMBER() OVER (ORDER BY item) < 1", Code.OVER, None, "start at 1"),
    ("SELECT RANK() OVER (ORDER BY item) FROM bids", Code.OVER, "item", "remove ORDER BY"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY item) + 1 FROM bids", Code.OVER, "item", "remove ORDER BY"),
    ("SELECT item FROM bids WHERE LAG(item) OVER () > 1", Code.OVER, "LAG(item) OVER ()", "SELECT"),
    ("SELECT LAG(item) OVER () FROM bids [NOW]", Code.OVER, "LAG(item) OVER ()", "window"),
    ("SELECT LAG(item) OVER (ORDER BY price) FROM bids", Code.OVER, "price", "remove ORDER BY"),
    ("SELECT LAG(item, 0) OVER () FROM bids", Code.OVER, "0", "LAG(x, 1"),
    ("SELECT LAG(item, 1, price) OVER () FROM bids", Code.OVER, "price", "LAG(x, 1"),
    ("SELECT LAG(item, 1, 'x') OVER () FROM bids", Code.TYPES, "'x'", "default"),
    ("SELECT LAG() OVER () FROM bids", Code.ARGUMENTS, "LAG", "LAG(x, 1"),
    ("SELECT LAG(item) OVER (ROWS 3 PRECEDING) FROM bids", Code.NOT_CQL, None, "aggregates"),
    ("SELECT LEAD(item) OVER (ORDER BY item) FROM bids", Code.OVER, "item", "remove ORDER BY"),
    ("SELECT 1", Code.NOT_CQL, "1", "FROM"),
    ("SELECT sum(price) OVER (ORDER BY item) FROM bids", Code.OVER, "item", "remove ORDER BY"),
    ("SELECT sum(price) OVER () FROM bids", Code.OVER, "sum(price) OVER ()", "ROWS BETWEEN"),
    (
        "SELECT item FROM bids WHERE item IN (SELECT id FROM items) OR item = 1",
        Code.NOT_CQL,
        "id FROM items",
        "connected with AND",
    ),
    (
        "SELECT item FROM bids WHERE item = 1 OR EXISTS (SELECT 1 FROM items)",
        Code.NOT_CQL,
        "1 FROM items)",
        "connected with AND",
    ),
    ("SELECT EXISTS (SELECT 1 FROM items) FROM bids", Code.NOT_CQL, None, "condition of WHERE"),
    (
        "SELECT item FROM bids WHERE item IN (SELECT * FROM items)",
        Code.COLUMN_COUNT,
        None,
        "EXISTS",
    ),
    (
        "SELECT item FROM bids b WHERE EXISTS (SELECT id FROM items i WHERE i.id = b.item GROUP BY id)",
        Code.NOT_CQL,
        None,
        "subquery in FROM",
    ),
    ("SELECT item FROM bids WHERE item IN (SELECT name FROM items)", Code.TYPES, None, "CAST"),
    (
        "SELECT item FROM bids, items RIGHT JOIN items j ON item = j.id",
        Code.JOIN_KIND,
        "items j",
        "CROSS JOIN",
    ),
    ("SELECT (SELECT 1 FROM items) FROM bids", Code.NOT_CQL, "1 FROM items", "FROM"),
    ("SELECT price + INTERVAL '1' DAY FROM bids", Code.TYPES, "price + INTERVAL '1' DAY", ""),
    ("SELECT INTERVAL '1' DAY AS d FROM bids", Code.NOT_CQL, "'1' DAY", "ts + INTERVAL"),
    ("SELECT INTERVAL 1 DAY - price FROM bids", Code.NOT_CQL, "DAY - price", "ts - INTERVAL"),
    ("SELECT price + INTERVAL 1 MONTH FROM bids", Code.DURATION, "MONTH", "vary in length"),
    ("SELECT price + INTERVAL '1:30' MINUTE TO SECOND FROM bids", Code.DURATION, None, "INTERVAL 10"),
    ("SELECT item FROM a.bids", Code.NOT_CQL, "a", "name of the stream"),
    ("SELECT item FROM bids INTERSECT SELECT id FROM items", Code.NOT_CQL, None, "join"),
    ("SELECT item[0] FROM bids", Code.TYPES, "item[0]", "CAST"),
    ("SELECT ARRAY[1][0:1] FROM bids", Code.NOT_CQL, "ARRAY[1][0:1]", "a[0]"),
    ("SELECT [1] FROM bids", Code.NOT_CQL, None, "array(1, 2)"),
    ("SELECT a.b.c.d.e FROM bids", Code.UNKNOWN_COLUMN, "a.b.c.d", "field of a struct"),
    ("SELECT item.x FROM bids", Code.TYPES, "item.x", "only a struct has fields"),
    ("SELECT named_struct('a', 1).b FROM bids", Code.TYPES, "named_struct('a', 1).b", "fields: a"),
    ("SELECT map('a') FROM bids", Code.ARGUMENTS, "map('a')", ""),
    ("SELECT get_json_object(item, 'a.b') FROM bids", Code.TYPES, "get_json_object(item, 'a.b')", "$.order"),
    ("SELECT from_json(item, item) FROM bids", Code.TYPES, "from_json(item, item)", "a INT"),
    (
        "SELECT transform(array(1), x -> x) FROM bids",
        Code.UNKNOWN_FUNCTION,
        "transform(array(1), x -> x)",
        "",
    ),
    ("SELECT upper(item AS x) FROM bids", Code.NOT_CQL, "item AS x", ""),
    ("INSERT INTO bids VALUES (1)", Code.STATEMENT, "INSERT", "SELECT"),
    ("DROP TABLE bids", Code.STATEMENT, "DROP", "SELECT"),
    ("CREATE STREEM s (a INT)", Code.STATEMENT, "STREEM", "'STREAM'"),
    ("", Code.ONE_QUERY, None, "SELECT"),
    ("CREATE VIEW v AS SELECT item FROM bids", Code.ONE_QUERY, None, "SELECT"),
    ("SELECT item FROM bids; SELECT price FROM bids", Code.ONE_QUERY, "price FROM bids", "once"),
    ("SELECT item FROM bids --" + "x" * 131_072, Code.TOO_LONG, None, "table"),
    ("SELECT item FROM bidz", Code.UNKNOWN_STREAM, "bidz", "'bids'"),
    ("SELECT b.item FROM bids", Code.UNKNOWN_STREAM, "b", "bids"),
    ("SELECT bids.item FROM bids AS b", Code.UNKNOWN_STREAM, "bids", "use b in place of bids"),
    ("SELECT prise\nFROM bids", Code.UNKNOWN_COLUMN, "prise", "'price'"),
    ("SELECT b.nme FROM bids b", Code.UNKNOWN_COLUMN, "b.nme", "columns: item, price"),
    ("SELECT item FROM bids [PARTITION BY kind ROWS 5]", Code.UNKNOWN_COLUMN, "kind", "columns"),
    ("SELECT item FROM bids WHERE window_end > 1", Code.UNKNOWN_COLUMN, "window_end", "SLIDE"),
    ("SELECT price * 2 AS p FROM bids WHERE p > 3", Code.UNKNOWN_COLUMN, "p", "not visible in WHERE"),
    ("SELECT item FROM bids START WITH item = 1 CONNECT BY item", Code.SYNTAX, "START", ""),
    ("SELECT item FROM bids a, bids b", Code.AMBIGUOUS_COLUMN, "item", "a.item or b.item"),
    ("SELECT uper(name) FROM items", Code.UNKNOWN_FUNCTION, "uper(name)", "'upper'"),
    ("SELECT summ(price) FROM bids [NOW]", Code.UNKNOWN_FUNCTION, "summ(price)", "'sum'"),
    ("SELECT item FROM bids WHERE item > 1 AND\n      item + name > 2", Code.UNKNOWN_COLUMN, "name", ""),
    ("SELECT 1 + upper(name) * 2 FROM items", Code.TYPES, "upper(name) * 2", "CAST"),
    ("SELECT upper(id) FROM items", Code.TYPES, "upper(id)", "CAST"),
    ("SELECT sum(name) FROM items [NOW]", Code.TYPES, "sum(name)", "cast"),
    ("SELECT item FROM bids UNION ALL SELECT name FROM items", Code.TYPES, None, "CAST"),
    ("SELECT upper(name, 1, 2) FROM items", Code.ARGUMENTS, "upper(name, 1, 2)", ""),
    ("SELECT sum(price, 1) FROM bids [NOW]", Code.ARGUMENTS, "sum(price, 1)", ""),
    ("CREATE STREAM s (a ARRAY<UUID>); SELECT a FROM s", Code.UNKNOWN_TYPE, "ARRAY", "BIGINT"),
    ("CREATE STREAM s (a MAP<INT>); SELECT a FROM s", Code.UNKNOWN_TYPE, "MAP", "MAP<STRING, INT>"),
    ("CREATE STREAM s (a FOO); SELECT a FROM s", Code.UNKNOWN_TYPE, "FOO", "BIGINT"),
    ("SELECT CAST(price AS DECIMAL(50, 2)) FROM bids", Code.UNKNOWN_TYPE, None, "38"),
    ("SELECT item FROM bids WHERE price", Code.NOT_BOOLEAN, "price", "comparison"),
    ("SELECT item FROM bids WHERE item = 1 AND price + 1", Code.NOT_BOOLEAN, "price + 1", "comparison"),
    ("SELECT 1 FROM bids, items, bids", Code.SAME_ALIAS, "bids", "bids AS"),
    (f"SELECT {'9' * 60} FROM bids", Code.LITERAL, "9" * 60, ""),
    ("SELECT item FROM bids [RNGE 5 MINUTES]", Code.WINDOW, "RNGE", "'RANGE'"),
    ("SELECT item FROM bids [ROWS 0]", Code.WINDOW, "0", "[ROWS 100]"),
    ("SELECT item FROM bids [ROWS 5 SLIDE]", Code.WINDOW, "]", "[ROWS 100]"),
    ("SELECT item FROM bids [NOW] AS b [NOW]", Code.WINDOW, "[", "subquery"),
    ("SELECT item FROM bids [PARTITION BY item]", Code.WINDOW, "]", "[PARTITION BY k ROWS 5]"),
    ("SELECT item FROM bids [NOW", Code.WINDOW, "NOW", ""),
    ("SELECT item FROM bids [RANGE 5 MINUTS]", Code.DURATION, "MINUTS", "'MINUTES'"),
    ("SELECT item FROM bids [RANGE 5]", Code.DURATION, "5", "5 SECONDS"),
    ("SELECT item FROM bids [RANGE MINUTES]", Code.DURATION, "MINUTES", "10 MINUTES"),
    ("SELECT item FROM bids [RANGE 0 SECONDS]", Code.DURATION, "0 SECONDS", "longer"),
    ("SELECT item FROM bids [RANGE 0.0000001 SECONDS]", Code.DURATION, "0.0000001 SECONDS", "longer"),
    ("SELECT item FROM (SELECT * FROM bids [NOW]) [NOW] x", Code.WINDOW_ON_RELATION, "[NOW", "ISTREAM"),
    ("SELECT item, count(*)\nFROM bids GROUP BY item", Code.NO_WINDOW, "bids", "bids [RANGE 10 MINUTES]"),
    ("SELECT count(*) FROM (SELECT DISTINCT item FROM bids) d", Code.NO_WINDOW, None, "[UNBOUNDED]"),
    ("SELECT max(sum(price)) FROM bids [NOW]", Code.NESTED_AGGREGATE, "sum(price)", "subquery"),
    ("SELECT item, price FROM bids [NOW] GROUP BY item", Code.NOT_GROUPED, "price", "GROUP BY"),
    ("SELECT * FROM bids [NOW] GROUP BY item", Code.NOT_GROUPED, "*", "GROUP BY"),
    ("SELECT item FROM bids [NOW] GROUP BY item HAVING price > 1", Code.NOT_GROUPED, "price", "GROUP BY"),
    ("SELECT item FROM bids [NOW] WHERE sum(price) > 1", Code.MISPLACED_AGGREGATE, "sum(price)", "HAVING"),
    (
        "SELECT 1 FROM bids a JOIN bids b ON max(a.item) = 1",
        Code.MISPLACED_AGGREGATE,
        "max(a.item)",
        "subquery",
    ),
    ("SELECT count(*) n FROM bids [NOW] GROUP BY n", Code.MISPLACED_AGGREGATE, "count(*)", "subquery"),
    ("SELECT item FROM bids [NOW] HAVING item > 1", Code.HAVING, "item > 1", "WHERE"),
    ("SELECT sum(DISTINCT price) FROM bids [NOW]", Code.AGGREGATE, "price", "count(DISTINCT"),
    ("SELECT max(*) FROM bids [NOW]", Code.AGGREGATE, "*", "count"),
    (
        "SELECT first(price) FILTER (WHERE item = 1) FROM bids [NOW]",
        Code.AGGREGATE,
        "first(price",
        "subquery",
    ),
    ("SELECT median(name) FROM items [NOW]", Code.TYPES, "median(name)", "cast"),
    ("SELECT bool_and(item) FROM bids [NOW]", Code.TYPES, "item", "x > 0"),
    ("SELECT percentile(price, 2) FROM bids [NOW]", Code.ARGUMENTS, "2", "0.5"),
    ("SELECT percentile(price, item) FROM bids [NOW]", Code.ARGUMENTS, "item", "number"),
    ("SELECT percentile(price) FROM bids [NOW]", Code.ARGUMENTS, "percentile(price)", ""),
    ("SELECT collect_set(DISTINCT item) FROM bids [NOW]", Code.AGGREGATE, "item", "subquery"),
    ("SELECT listagg(name, 3) FROM items [NOW]", Code.ARGUMENTS, "3", "listagg(x"),
    ("SELECT median(a.price) FROM SEQ(bids+ AS a, items) RECENT", Code.AGGREGATE, "median(a.price)", "avg"),
    ("SELECT upper(name) FILTER (WHERE id = 1) FROM items", Code.AGGREGATE, None, "FILTER"),
    ("SELECT item FROM bids [NOW] GROUP BY 2", Code.GROUP_POSITION, "2", "1 columns"),
    ("SELECT count(*) FROM bids [NOW] GROUP BY 'x'", Code.GROUP_POSITION, "'x'", "column"),
    ("SELECT item FROM bids NATURAL JOIN items", Code.JOIN_KIND, "items", "LEFT JOIN"),
    ("SELECT item FROM bids LEFT SEMI JOIN items", Code.JOIN_KIND, "items", "ON a.k = b.k"),
    (
        "SELECT 1 FROM bids [NOW] ANTI JOIN items ON item = id RIGHT JOIN items AS i ON TRUE",
        Code.JOIN_KIND,
        "items",
        "subquery",
    ),
    ("SELECT item FROM bids a JOIN bids b USING (item)", Code.JOIN_KIND, "item", "ON a.k = b.k"),
    ("SELECT item FROM bids UNION ALL SELECT id, name FROM items", Code.COLUMN_COUNT, None, "same number"),
    ("SELECT a FROM bids AS b(a)", Code.COLUMN_COUNT, "b(a)", ""),
    ("DSTREAM(SELECT item FROM bids)", Code.MEANINGLESS_OUTPUT, None, "window"),
    ("DSTREAM(SELECT item FROM bids, items)", Code.MEANINGLESS_OUTPUT, None, "window"),
    (
        "SELECT ISTREAM(item), price FROM bids [NOW]",
        Code.MEANINGLESS_OUTPUT,
        "ISTREAM(item)",
        "ISTREAM(a, b)",
    ),
    ("RSTREAM(SELECT item FROM bids [UNBOUNDED])", Code.ENDLESS, None, "[NOW]"),
    ("SELECT RSTREAM(item) FROM bids [ROWS 5]", Code.ENDLESS, "RSTREAM(item)", "ISTREAM"),
    (
        "SELECT 1 FROM bids [RANGE 9 HOURS SLIDE 2 HOURS], items [RANGE 9 HOURS SLIDE 3 HOURS]",
        Code.SLIDES,
        None,
        "ISTREAM",
    ),
    ("CREATE STREAM Bids (a INT)", Code.NAME_TAKEN, "Bids", "OR REPLACE"),
    ("CREATE STREAM s (a INT, tz TIMESTAMP) TIME ts", Code.TIME_COLUMN, "ts", "'tz'"),
    ("CREATE STREAM s (a STRING) TIME a", Code.TIME_COLUMN, "a", "TIMESTAMP"),
    ("CREATE STREAM s (a INT, A INT)", Code.SAME_COLUMN, "A", ""),
    ("SELECT item FROM bids [SESSION 30 SECONDS]", Code.SESSION, "bids", "GROUP BY k"),
    ("SELECT count(*) FROM bids [SESSION 1 HOUR], items [NOW]", Code.SESSION, "bids", "one stream"),
    ("SELECT * FROM ((bids [SESSION 1 HOUR])) x", Code.SESSION, None, "count(*)"),
    (
        "SELECT count(*) FROM bids [PARTITION BY item SESSION 1 HOUR] GROUP BY price",
        Code.SESSION,
        "price",
        "add item to GROUP BY",
    ),
    ("SELECT count(*) FROM bids [PARTITION BY () ROWS 3]", Code.WINDOW, "ROWS", "SESSION"),
    ("SELECT count(*) FROM bids [SESSION 0 SECONDS]", Code.DURATION, "0 SECONDS", "longer"),
    ("SELECT item FROM bids [RANGE MIN 2 HOURS]", Code.QUALITY, "]", "MIN 2 HOURS, MAX"),
    ("SELECT item FROM bids [RANGE MIN 2 HOURS, MIN 5 HOURS]", Code.QUALITY, "MIN", "MIN 2 HOURS, MAX"),
    ("SELECT item FROM bids [RANGE MIN 5 HOURS, MAX 2 HOURS]", Code.QUALITY, "5 HOURS", "swap"),
    ("SELECT item FROM bids [RANGE MIN 1 HOUR, MAX 2 HOURS SLIDE 2 HOURS]", Code.QUALITY, "1 HOUR", "SLIDE"),
    ("SELECT item FROM bids [ROWS MIN 9, MAX 2]", Code.QUALITY, "[ROWS MIN 9, MAX 2", "swap"),
    ("SELECT item FROM bids [ROWS MIN 2, MIN 9]", Code.QUALITY, "MIN", "MIN 50, MAX"),
    ("SELECT item FROM bids [ROWS MIN 2, MAX 9 SLIDE 3]", Code.WINDOW, "SLIDE", "windows"),
    (
        "SELECT count(*), window_end FROM bids [RANGE MIN 2 HOURS, MAX 4 HOURS SLIDE 1 HOUR]",
        Code.UNKNOWN_COLUMN,
        "window_end",
        "headrace_window",
    ),
    ("SELECT avg(price) [GRANULARITY COARSEST 2 HOURS] FROM bids [NOW]", Code.QUALITY, "]", "FINEST"),
    ("SELECT seq(item) FROM bids", Code.SEQUENCE, "seq(item)", "FROM SEQ"),
    ("SELECT 1 FROM SEQ(bids, items)", Code.SEQUENCE, "SEQ(bids, items)", "RECENT"),
    ("SELECT 1 FROM SEQ(bids, items) RECENT AS s", Code.SEQUENCE, "AS", "SEQ("),
    ("SELECT 1 FROM SEQ(bids, items) RECENT, bids [NOW]", Code.SEQUENCE, "SEQ(bids, items)", "subquery"),
    ("SELECT 1 FROM SEQ(bids [NOW], items) RECENT", Code.SEQUENCE, "bids", "WITHIN"),
    ("SELECT 1 FROM SEQ((SELECT * FROM bids), items) RECENT", Code.SEQUENCE, None, "AS x"),
    ("SELECT 1 FROM SEQ(bids AS a, NOT items) RECENT", Code.SEQUENCE, None, "SEQ(a, b)"),
    ("SELECT 1 FROM SEQ(bids AS a, items AS b, NOT bids AS c) RECENT", Code.SEQUENCE, None, "NOT c"),
    ("SELECT 1 FROM SEQ(bids AS a, items+ AS b) RECENT", Code.SEQUENCE, None, "a+"),
    ("SELECT 1 FROM SEQ(bids AS a, NOT items+ AS b, bids AS c) RECENT", Code.SEQUENCE, "+", "NOT"),
    ("SELECT 1 FROM SEQ(bids+ AS a, items AS b) CONSECUTIVE", Code.SEQUENCE, None, "CHRONICLE"),
    ("SELECT 1 FROM SEQ(bids, items AS Bids) RECENT", Code.SAME_ALIAS, "items AS Bids", "AS"),
    ("SELECT 1 FROM SEQ(bids, ) RECENT", Code.SYNTAX, ")", ""),
    ("SELECT 1 FROM SEQ(bids AS a items) RECENT", Code.SYNTAX, "items", "SEQ("),
    ("SELECT a.price FROM SEQ(bids+ AS a, items) RECENT", Code.UNKNOWN_COLUMN, "a.price", "first(a.price)"),
    ("SELECT first(a.*) FROM SEQ(bids+ AS a, items) RECENT", Code.AGGREGATE, "a.*", "count"),
    ("SELECT 1 FROM SEQ(bids, items) RECENT PARTITION BY item", Code.SEQUENCE_KEY, "item", "items.…"),
    (
        "SELECT 1 FROM SEQ(bids, items) RECENT PARTITION BY bids.item",
        Code.SEQUENCE_KEY,
        "bids.item",
        "items.",
    ),
    ("SELECT 1 FROM SEQ(bids, items) RECENT PARTITION BY item = 3", Code.SEQUENCE_KEY, "3", "x.a = y.b"),
    (
        "SELECT 1 FROM SEQ(bids, items) RECENT PARTITION BY bids.item = items.name",
        Code.SEQUENCE_KEY,
        "bids.item = items.name",
        "same type",
    ),
    (
        "SELECT 1 FROM SEQ(bids AS a, NOT items AS b, bids AS c) RECENT WHERE b.id = c.item",
        Code.SEQUENCE_CONDITION,
        "b.id = c.item",
        "before it",
    ),
    (
        "SELECT 1 FROM bids MATCH_RECOGNIZE (MEASURES A.price AS x PATTERN (A) DEFINE A AS NEXT(price) > 1)",
        Code.PATTERN,
        "NEXT(price)",
        "PREV(B.x)",
    ),
    (
        "SELECT 1 FROM bids MATCH_RECOGNIZE (MEASURES C.price AS p PATTERN (A B))",
        Code.PATTERN_VARIABLE,
        "C",
        "variables: A, B",
    ),
    (
        "SELECT 1 FROM SEQ(bids+ AS a, items) RECENT WHERE a.price > first(a.price)",
        Code.SEQUENCE_CONDITION,
        "a.price > first(a.price)",
        "last(a.…)",
    ),
    (
        "SELECT avg(price) [GRANULARITY COARSEST 2 HOURS, FINEST 3 HOURS] FROM bids [NOW]",
        Code.QUALITY,
        "3 HOURS",
        "swap",
    ),
    (
        "SELECT avg(price) [GRANULARITY 1 HOUR], sum(price) [GRANULARITY 2 HOURS], max(price) "
        "FROM bids [RANGE 9 HOURS]",
        Code.GRANULARITY,
        "max(price)",
        "max(…) [GRANULARITY",
    ),
    (
        "SELECT avg(price) [GRANULARITY 1 HOUR], sum(price) [GRANULARITY 2 HOURS], headrace_granularity() "
        "FROM bids [RANGE 9 HOURS]",
        Code.QUALITY_COLUMN,
        "headrace_granularity()",
        "subquery",
    ),
    ("SELECT avg(price) [GRANULARITY 1 HOUR] FROM bids [ROWS 9]", Code.GRANULARITY, None, "time window"),
    (
        "SELECT avg(price) [GRANULARITY 3 HOURS] FROM bids [RANGE 9 HOURS SLIDE 2 HOURS]",
        Code.GRANULARITY,
        "[GRANULARITY 3 HOURS",
        "SLIDE",
    ),
    ("SELECT avg(price) [GRANULARITY 1 HOUR] FROM bids [SESSION 9 HOURS]", Code.GRANULARITY, None, "RANGE"),
    ("SELECT abs(price) [GRANULARITY 1 HOUR] FROM bids", Code.GRANULARITY, None, "avg(x)"),
    ("SELECT price [GRANULARITY 1 HOUR] FROM bids", Code.GRANULARITY, "GRANULARITY", "avg(x)"),
    ("CREATE TABLE t FROM 'file.xls'", Code.TABLE_FORMAT, "'file.xls'", ".csv"),
    (
        "CREATE TABLE t FROM 'no/such/file.csv'",
        Code.TABLE_FILE,
        "'no/such/file.csv'",
        "the path is relative to",
    ),
    ("CREATE TABLE t (a INT) FROM items", Code.TABLE_CHANGES, "items", "FROM 'items.csv'"),
    (
        "CHANGELOG(SELECT item, count(*) AS n FROM bids [NOW] GROUP BY item) PRIMARY KEY (n)",
        Code.CHANGELOG_KEY,
        "n",
        "group by n",
    ),
]
MIGRATED = [
    # text, code, what the carets are under, a part of the hint
    ("SELECT item FROM bids EMIT CHANGES", Code.SYNTAX, "EMIT CHANGES", "ISTREAM"),
    ("SELECT item FROM bids b GROUP BY item EMIT FINAL", Code.SYNTAX, "EMIT FINAL", "once"),
    (
        "SELECT count(*) FROM bids WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 5 MINUTES) EMIT CHANGES",
        Code.SYNTAX,
        "WINDOW TUMBLING",
        "FROM bids [RANGE 1 HOUR SLIDE 1 HOUR]",
    ),
    (
        "SELECT 1 FROM bids WINDOW HOPPING (SIZE 2 HOURS, ADVANCE BY 1 HOUR) GROUP BY item",
        Code.SYNTAX,
        "WINDOW HOPPING",
        "FROM bids [RANGE 2 HOURS SLIDE 1 HOUR]",
    ),
    ("SELECT 1 FROM bids WINDOW SESSION (9 HOURS) GROUP BY item", Code.SYNTAX, None, "[SESSION 9 HOURS]"),
    (
        "SELECT 1 FROM bids a JOIN items b WITHIN 3 HOURS ON a.item = b.id",
        Code.SYNTAX,
        "WITHIN",
        "BETWEEN a.ts - INTERVAL 3 HOURS",
    ),
    ("SELECT item FROM bids WATERMARK ts DELAY OF INTERVAL 1 HOUR", Code.SYNTAX, "DELAY OF", "disorder"),
    (
        "SELECT * FROM bids MATCH_RECOGNIZE (MEASURES A.price AS p ALL ROWS PER MATCH PATTERN (A B+))",
        Code.PATTERN,
        "ALL",
        "a match is one row",
    ),
    (
        "CREATE STREAM t (ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)",
        Code.SYNTAX,
        "WATERMARK FOR",
        "TIME ts",
    ),
    ("CREATE STREAM t (a INT KEY) WITH (KAFKA_TOPIC = 'x')", Code.SYNTAX, "WITH (", "pipeline file"),
    ("CREATE STREAM x AS SELECT item FROM bids", Code.SYNTAX, "AS", "CREATE VIEW"),
    ("CREATE TABLE x AS SELECT item FROM bids", Code.SYNTAX, "AS", "CREATE VIEW"),
    ("from bids select item insert into out", Code.SYNTAX, None, "write SELECT item FROM bids"),
    (
        "from bids[price > 2]#window.timeBatch(1 min) select sum(price) as p group by item insert into o",
        Code.SYNTAX,
        None,
        "sum(price) as p FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] WHERE price > 2 group by item",
    ),
    (
        "from every e1=bids[price>20] -> not items[id==e1.item] for 10 sec select e1.item insert into out",
        Code.SYNTAX,
        None,
        "SEQ(bids AS e1, NOT items AS n1 FOR 10 SECOND) EVERY WHERE (e1.price>20) AND (n1.id=e1.item)",
    ),
    ("SELECT now() FROM bids", Code.UNKNOWN_FUNCTION, "now()", "TIME INTERNAL"),
    ("SELECT PROCTIME() FROM bids", Code.UNKNOWN_FUNCTION, "PROCTIME()", "TIME INTERNAL"),
    ("SELECT current_timestamp FROM bids", Code.UNKNOWN_COLUMN, "current_timestamp", "TIME INTERNAL"),
    ("SELECT rand() FROM bids", Code.UNKNOWN_FUNCTION, "rand()", "restart"),
    ("SELECT frobnicate(item) FROM bids", Code.UNKNOWN_FUNCTION, None, "expressions.md"),
    ("SELECT upper(explode(item)) FROM bids", Code.UNKNOWN_FUNCTION, "explode(item)", "UNNEST(items)"),
    ("SELECT latest_by_offset(item) FROM bids", Code.UNKNOWN_FUNCTION, None, "last(x)"),
    ("SELECT TUMBLE_START(item) FROM bids", Code.UNKNOWN_FUNCTION, None, "window_start"),
    ("SELECT current_watermark(item) FROM bids", Code.UNKNOWN_FUNCTION, None, "status"),
    (
        "SELECT count(*) FROM bids GROUP BY HOP(ts, INTERVAL '5' SECOND, INTERVAL '10' SECOND), item",
        Code.NO_WINDOW,
        None,
        "HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)) GROUP BY window_start",
    ),
    ("INSERT INTO out SELECT item FROM bids", Code.STATEMENT, "INSERT", "where answers go"),
    ("MERGE INTO t USING bids ON true", Code.STATEMENT, "MERGE", "CREATE TABLE t PRIMARY KEY (k)"),
    ("SELECT windowstart FROM bids", Code.UNKNOWN_COLUMN, "windowstart", "window_start"),
    (
        "SELECT item FROM bids FOR SYSTEM_TIME AS OF ts",
        Code.NOT_CQL,
        None,
        "JOIN rates FOR SYSTEM_TIME AS OF",
    ),
    ("SELECT count(*) FROM bids [NOW] GROUP BY CUBE (item)", Code.NOT_CQL, None, "UNION ALL"),
    ("SELECT count(*) FROM bids [NOW] GROUP BY GROUPING SETS ((item))", Code.NOT_CQL, None, "UNION ALL"),
    ("SELECT listagg(item) WITHIN GROUP (ORDER BY item) FROM bids [NOW]", Code.NOT_CQL, None, "of time"),
]
INTERNALS = re.compile(
    r"[A-Z][a-z]+[A-Z]|BRACKET|GROUPINGSETS|WITHINGROUP|BITWISE|JSONEXTRACT|Token|<class|Expecting"
)
"""Names of parser classes: none of our messages needs such a word."""


@pytest.mark.parametrize(
    ("text", "code", "marked", "hint"), MIGRATED, ids=[text[:60] for text, *_ in MIGRATED]
)
def test_a_text_of_another_system_gets_a_hint_with_our_spelling(
    text: str, code: Code, marked: str | None, hint: str
) -> None:
    test_an_error_has_a_code_a_place_and_a_hint(text, code, marked, hint)


@pytest.mark.parametrize(
    "text",
    [text for text, *_ in CASES + MIGRATED]
    + [
        "SELECT item[0] FROM bids",
        "SELECT [1] FROM bids",
        "SELECT {'a': 1} FROM bids",
        "SELECT item -> 'a' FROM bids",
        "SELECT item ->> 'a' FROM bids",
        "SELECT :x FROM bids",
        "SELECT item FROM bids WHERE price > ALL (SELECT 1 FROM items)",
        "SELECT * FROM bids CROSS JOIN UNNEST(x) AS t (y)",
        "SELECT * FROM bids, LATERAL (SELECT 1)",
        "SELECT TOP 3 item FROM bids",
        "SELECT CEIL(price TO DAY) FROM bids",
        "SELECT item AT TIME ZONE 'UTC' FROM bids",
        "SELECT CASE WHEN item END FROM bids",
        "SELECT item FROM bids WHERE item =",
        "SELECT count(*) FROM bids GROUP BY",
    ],
)
def test_no_error_names_the_insides_of_the_parser(text: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(text, STREAMS)
    assert not INTERNALS.search(caught.value.message), caught.value.message


def test_words_of_another_system_in_quotes_or_in_a_valid_query_are_no_error() -> None:
    text = "SELECT item AS emit, 'WATERMARK FOR' AS changes FROM bids"
    assert query(text, STREAMS).schema.names == ["emit", "changes"]


ELSEWHERE = {
    Code.TOO_DEEP,
    Code.TIME_DOMAINS,
    Code.STREAMS,
    Code.TABLE_COLUMNS,
    Code.NO_STREAM,
    Code.DEFINITION,
}


@pytest.mark.parametrize(("text", "code", "marked", "hint"), CASES, ids=[text[:60] for text, *_ in CASES])
def test_an_error_has_a_code_a_place_and_a_hint(text: str, code: Code, marked: str | None, hint: str) -> None:
    with pytest.raises(SqlError) as caught:
        query(text, STREAMS)
    error = caught.value
    assert error.code == code, str(error)
    assert hint in error.hint, str(error)
    if marked is not None:
        quoted, carets = error.excerpt.split("\n")
        assert quoted[2:] == text.split("\n")[error.line - 1]
        assert quoted[carets.index("^") : len(carets)] == marked, str(error)
        assert carets.index("^") == error.column + 1


def test_every_code_is_shown_by_an_example() -> None:
    assert {code for _, code, *_ in CASES} | ELSEWHERE == set(Code)


def test_an_error_reads_as_a_person_would_say_it() -> None:
    with pytest.raises(HeadraceError) as caught:
        query("SELECT item,\n       prise * 2\nFROM   bids", STREAMS)
    assert str(caught.value) == "\n".join(
        [
            "[HR-Q011] the column 'prise' does not exist (at line 2, column 8)",
            "         prise * 2",
            "         ^^^^^",
            "  hint: did you mean 'price'?",
        ]
    )


def test_deep_nesting_is_an_error_and_not_a_crash() -> None:
    for text in (f"SELECT {'(' * 5000}1{')' * 5000} FROM bids", "SELECT " + "NOT " * 5000 + "TRUE FROM bids"):
        with pytest.raises(SqlError) as caught:
            query(text, STREAMS)
        assert caught.value.code in (Code.TOO_DEEP, Code.SYNTAX)


def test_long_lists_of_conditions_are_not_deep() -> None:
    many = " OR ".join(f"item = {i}" for i in range(2000))
    assert query(f"SELECT item FROM bids WHERE {many}", STREAMS).schema.names == ["item"]
    both = " AND ".join(f"item <> {i}" for i in range(2000))
    assert query(f"SELECT item FROM bids WHERE {both}", STREAMS).schema.names == ["item"]


def test_long_unions_are_not_deep() -> None:
    text = " UNION ALL ".join(["SELECT item FROM bids"] * 300)
    assert query(text, STREAMS).schema.names == ["item"]
