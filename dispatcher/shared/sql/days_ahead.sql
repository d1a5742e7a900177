-- For how many days after today every partitioned table has a partition, without a gap: 0 is only today, -1 not even
-- today. Index: the catalogue's own.
SELECT min(ahead.day) - 1 AS days
FROM unnest(ARRAY['attempt', 'entry', 'suppressed']) AS parent
CROSS JOIN generate_series(0, 400) AS ahead (day)
WHERE to_regclass(
    'holdfast.' || parent || '_' || to_char((clock_timestamp() AT TIME ZONE 'UTC')::date + ahead.day, 'YYYYMMDD')
) IS NULL
