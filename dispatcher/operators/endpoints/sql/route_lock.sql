-- Keeps routing out for this transaction, after those that are routing have ended: what is routed from then on is routed
-- to the endpoint that this transaction adds. A statement of its own, before the clock is read. Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.route'))
