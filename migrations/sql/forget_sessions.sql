-- Deletes the records of dispatchers that are gone, and of API servers that were not seen for a month.
-- Index: none; a row per process that was ever started since the last upgrade.
DELETE FROM holdfast.code_session AS c
WHERE c.kind = 'dispatcher' AND NOT EXISTS (
        SELECT FROM holdfast.dispatcher_instance AS d WHERE d.id::text = c.name
    )
    OR c.kind = 'api' AND c.seen_at < clock_timestamp() - interval '30 days'
