-- Excludes routing for this transaction, after running ones end: later routing sees the endpoint that this transaction adds.
-- A statement of its own, before the clock is read. Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))
