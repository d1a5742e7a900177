-- Whether the partition of a moment's day (UTC) exists.
-- Uses the catalogue's own index.
SELECT to_regclass('holdfast.entry_' || to_char(%(at)s::timestamptz AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL AS stored
