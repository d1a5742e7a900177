-- How many rows of each winning attempt are in the stage: an unlogged table is empty after a crash.
-- No index: it reads all of the stage.
SELECT attempt, count(*) AS rows, count(reason) AS refused
FROM {stage}
WHERE attempt = ANY(%(attempts)s::bigint[])
GROUP BY attempt
