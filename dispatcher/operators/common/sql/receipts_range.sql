-- The time range of a check or comparison, by this database's clock: spans before now, or the given times.
-- Reads no table. `until` is never in the future: what is not recorded yet is not missing.
SELECT coalesce(%(since)s::timestamptz, now() - %(since_span)s::interval) AS since,
       least(now(), coalesce(%(until)s::timestamptz, now() - %(until_span)s::interval)) AS until
