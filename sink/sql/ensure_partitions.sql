-- Makes the partitions of the coming days, once a run and once a day of the database's clock (UTC);
-- commits by itself, before the batch. No index.
SELECT
    today,
    CASE WHEN today IS DISTINCT FROM %(ensured)s::date THEN holdfast.ensure_partitions() END AS made
FROM (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS today) AS clock
