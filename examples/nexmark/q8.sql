-- Monitor new users: who registered and opened an auction in the same 10 seconds.
SELECT p.id, p.name, timestamp_micros(p.starttime) AS starttime
FROM  (SELECT id, name, window_start AS starttime, window_end AS endtime
       FROM   person [RANGE 10 SECONDS SLIDE 10 SECONDS]
       GROUP  BY id, name) AS p
JOIN  (SELECT seller, window_start AS starttime, window_end AS endtime
       FROM   auction [RANGE 10 SECONDS SLIDE 10 SECONDS]
       GROUP  BY seller) AS a
ON     p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime
