-- Local item suggestion: who sells in category 10 in Oregon, Idaho or California.
SELECT p.name, p.city, p.state, a.id
FROM   auction [UNBOUNDED] AS a
JOIN   person [UNBOUNDED] AS p ON a.seller = p.id
WHERE  a.category = 10 AND p.state IN ('or', 'id', 'ca')
