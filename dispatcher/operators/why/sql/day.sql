-- Whether the day of a moment (UTC) is still stored.
-- Index: the catalogue's own.
SELECT to_regclass('holdfast.entry_' || to_char(%(at)s::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL AS stored
