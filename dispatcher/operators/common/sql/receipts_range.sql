-- The time that a comparison is about, by this database's clock: spans before now, or times as they were given.
-- No table. `until` is never in the future: what is not booked yet is not missing.
SELECT coalesce(%(since)s::timestamptz, now() - %(since_span)s::interval) AS since,
       least(now(), coalesce(%(until)s::timestamptz, now() - %(until_span)s::interval)) AS until
