-- The time range of a check or comparison, which ends now at the latest by this database's clock: what
-- is not recorded yet is not missing. Reads no table.
SELECT %(since)s::timestamptz AS since, least(now(), %(until)s::timestamptz) AS until
