-- Serialises plans of replays, so that two cannot take the same entries; held until the transaction ends.
-- Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.replay'))
