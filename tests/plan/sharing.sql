-- Queries over one stream share windows, joins and aggregates, with the columns and the calls of all. Each takes
-- its own columns above them.

-- case: different columns through one window
SELECT k, v FROM s [RANGE 60];
SELECT t FROM s [RANGE 60]
-- before
q1: istream
  window [RANGE 60]
    project k, v
      stream s (external time)
q2: istream
  window [RANGE 60]
    project t
      stream s (external time)
-- after
q1: istream
  project k, v
    window [RANGE 60]
      stream s (external time)
q2: istream
  project t
    window [RANGE 60]
      stream s (external time)

-- case: different columns through one window, with the same filter
SELECT k FROM s [PARTITION BY k ROWS 3] WHERE k > 1;
SELECT k, t FROM s [PARTITION BY k ROWS 3] WHERE k > 1
-- before
q1: istream
  window [PARTITION BY k ROWS 3]
    select k > 1
      project k
        stream s (external time)
q2: istream
  window [PARTITION BY k ROWS 3]
    select k > 1
      project k, t
        stream s (external time)
-- after
q1: istream
  project k
    window [PARTITION BY k ROWS 3]
      select k > 1
        project k, t
          stream s (external time)
q2: istream
  window [PARTITION BY k ROWS 3]
    select k > 1
      project k, t
        stream s (external time)

-- case: different aggregates over one window and key
SELECT k, sum(v) AS x FROM s [RANGE 60] GROUP BY k;
SELECT k, max(v) AS x FROM s [RANGE 60] GROUP BY k HAVING max(v) > 3;
SELECT count(*) AS n, k FROM s [RANGE 60] GROUP BY k
-- before
q1: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)
q2: istream
  project k, max AS x
    select max > 3
      aggregate max(v) AS max by k
        window [RANGE 60]
          project k, v
            stream s (external time)
q3: istream
  project count AS n, k
    aggregate count(*) AS count by k
      window [RANGE 60]
        project k
          stream s (external time)
-- after
q1: istream
  project k, sum AS x
    aggregate count(*) AS count, max(v) AS max, sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)
q2: istream
  project k, max AS x
    select max > 3
      project k, max
        aggregate count(*) AS count, max(v) AS max, sum(v) AS sum by k
          window [RANGE 60]
            project k, v
              stream s (external time)
q3: istream
  project count AS n, k
    aggregate count(*) AS count, max(v) AS max, sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)

-- case: different aggregates from the same panes; the report is shared too
SELECT k, sum(v) AS x FROM s [RANGE 60 SLIDE 10] GROUP BY k;
SELECT k, avg(v * 2) AS x, window_end FROM s [RANGE 60 SLIDE 10] GROUP BY k
-- before
q1: rstream each 10, each row once
  project k, sum AS x
    aggregate sum(v) AS sum by k from panes [RANGE 60 SLIDE 10]
      project k, v
        stream s (external time)
q2: rstream each 10, each row once
  project k, avg AS x, window_end
    aggregate avg(argument) AS avg by k from panes [RANGE 60 SLIDE 10]
      project k, v * 2 AS argument
        stream s (external time)
-- after
q1: project k, sum AS x
  rstream each 10, each row once
    aggregate avg(argument) AS avg, sum(v) AS sum by k from panes [RANGE 60 SLIDE 10]
      project k, v * 2 AS argument, v
        stream s (external time)
q2: project k, avg AS x, window_end
  rstream each 10, each row once
    aggregate avg(argument) AS avg, sum(v) AS sum by k from panes [RANGE 60 SLIDE 10]
      project k, v * 2 AS argument, v
        stream s (external time)

-- case: different columns of one join, under different names
SELECT s.t, r.w FROM s [RANGE 60], r [RANGE 30] WHERE s.k = r.j;
SELECT x.v FROM s [RANGE 60] AS x, r [RANGE 30] AS y WHERE x.k = y.j
-- before
q1: istream
  project s.t AS t, r.w AS w
    join on s.k = r.j
      window [RANGE 60]
        project k AS s.k, t AS s.t
          stream s (external time)
      window [RANGE 30]
        project j AS r.j, w AS r.w
          stream r (external time)
q2: istream
  project x.v AS v
    join on x.k = y.j
      window [RANGE 60]
        project k AS x.k, v AS x.v
          stream s (external time)
      window [RANGE 30]
        project j AS y.j
          stream r (external time)
-- after
q1: istream
  project s.t AS t, r.w AS w
    join on s.k = r.j
      project k AS s.k, v AS x.v, t AS s.t
        window [RANGE 60]
          stream s (external time)
      project j AS r.j, w AS r.w
        window [RANGE 30]
          stream r (external time)
q2: istream
  project x.v AS v
    join on s.k = r.j
      project k AS s.k, v AS x.v, t AS s.t
        window [RANGE 60]
          stream s (external time)
      project j AS r.j, w AS r.w
        window [RANGE 30]
          stream r (external time)

-- case: an aggregate and rows of one window
SELECT k, t FROM s [RANGE 60];
SELECT k, sum(v) AS x FROM s [RANGE 60] GROUP BY k
-- before
q1: istream
  window [RANGE 60]
    project k, t
      stream s (external time)
q2: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)
-- after
q1: istream
  project k, t
    window [RANGE 60]
      stream s (external time)
q2: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      project k, v
        window [RANGE 60]
          stream s (external time)

-- case: the same columns in another order
SELECT DISTINCT k, v FROM s [RANGE 60];
SELECT DISTINCT v AS value, k AS key FROM s [RANGE 60]
-- before
q1: istream
  distinct
    window [RANGE 60]
      project k, v
        stream s (external time)
q2: istream
  distinct
    window [RANGE 60]
      project v AS value, k AS key
        stream s (external time)
-- after
q1: istream
  distinct
    window [RANGE 60]
      project k, v
        stream s (external time)
q2: project v AS value, k AS key
  istream
    distinct
      window [RANGE 60]
        project k, v
          stream s (external time)

-- case: different bounds, each kept where it was written: the graph intersects them
SELECT k FROM s [RANGE MIN 20, MAX 60];
SELECT v FROM s [RANGE MIN 10, MAX 40]
-- before
q1: istream
  window [RANGE MIN 20, MAX 60]
    project k
      stream s (external time)
q2: istream
  window [RANGE MIN 10, MAX 40]
    project v
      stream s (external time)
-- after
q1: istream
  project k
    window [RANGE MIN 20, MAX 60]
      project k, v
        stream s (external time)
q2: istream
  project v
    window [RANGE MIN 10, MAX 40]
      project k, v
        stream s (external time)

-- case: not bounds without a common value
SELECT k FROM s [RANGE MIN 50, MAX 60];
SELECT v FROM s [RANGE MIN 10, MAX 40]
-- before
q1: istream
  window [RANGE MIN 50, MAX 60]
    project k
      stream s (external time)
q2: istream
  window [RANGE MIN 10, MAX 40]
    project v
      stream s (external time)
-- after
(unchanged)

-- case: not another window, filter or key
SELECT k, sum(v) AS x FROM s [RANGE 60] GROUP BY k;
SELECT k, sum(v) AS x FROM s [RANGE 30] GROUP BY k;
SELECT k, v FROM s [RANGE 60] WHERE k > 1
-- before
q1: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)
q2: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      window [RANGE 30]
        project k, v
          stream s (external time)
q3: istream
  window [RANGE 60]
    select k > 1
      project k, v
        stream s (external time)
-- after
(unchanged)

-- case: not a filter alone
SELECT k FROM s WHERE v > 1;
SELECT t FROM s WHERE v > 1
-- before
q1: project k
  select v > 1
    project k, v
      stream s (external time)
q2: project t
  select v > 1
    project v, t
      stream s (external time)
-- after
(unchanged)

-- case: distinct rows of different columns share the window only
SELECT DISTINCT k FROM s [RANGE 60];
SELECT DISTINCT v FROM s [RANGE 60]
-- before
q1: istream
  distinct
    window [RANGE 60]
      project k
        stream s (external time)
q2: istream
  distinct
    window [RANGE 60]
      project v
        stream s (external time)
-- after
q1: istream
  distinct
    project k
      window [RANGE 60]
        project k, v
          stream s (external time)
q2: istream
  distinct
    project v
      window [RANGE 60]
        project k, v
          stream s (external time)

-- case: an aggregate that depends on the order of rows shares the window only
SELECT k, sum(v) AS x FROM s [RANGE 60] GROUP BY k;
SELECT k, last(v) AS x FROM s [RANGE 60] GROUP BY k
-- before
q1: istream
  project k, sum AS x
    aggregate sum(v) AS sum by k
      window [RANGE 60]
        project k, v
          stream s (external time)
q2: istream
  project k, last AS x
    aggregate last(v) AS last by k
      window [RANGE 60]
        project k, v
          stream s (external time)
-- after
(unchanged)

-- case: a new query uses what runs already
SELECT k FROM s [PARTITION BY k ROWS 3]
-- fixed
SELECT k, v FROM s [PARTITION BY k ROWS 3]
-- before
q1: istream
  window [PARTITION BY k ROWS 3]
    project k
      stream s (external time)
fixed1: istream
  window [PARTITION BY k ROWS 3]
    project k, v
      stream s (external time)
-- after
q1: istream
  project k
    window [PARTITION BY k ROWS 3]
      project k, v
        stream s (external time)

-- case: not what runs already without all that is needed
SELECT k, t FROM s [PARTITION BY k ROWS 3]
-- fixed
SELECT k, v FROM s [PARTITION BY k ROWS 3]
-- before
q1: istream
  window [PARTITION BY k ROWS 3]
    project k, t
      stream s (external time)
fixed1: istream
  window [PARTITION BY k ROWS 3]
    project k, v
      stream s (external time)
-- after
(unchanged)

-- case: new queries share with each other what no fixed plan has
SELECT k, t FROM s [PARTITION BY k ROWS 3];
SELECT k, t, v FROM s [PARTITION BY k ROWS 3]
-- fixed
SELECT k, v FROM s [PARTITION BY k ROWS 3]
-- before
q1: istream
  window [PARTITION BY k ROWS 3]
    project k, t
      stream s (external time)
q2: istream
  window [PARTITION BY k ROWS 3]
    project k, t, v
      stream s (external time)
fixed1: istream
  window [PARTITION BY k ROWS 3]
    project k, v
      stream s (external time)
-- after
q1: istream
  project k, t
    window [PARTITION BY k ROWS 3]
      stream s (external time)
q2: istream
  project k, t, v
    window [PARTITION BY k ROWS 3]
      stream s (external time)
