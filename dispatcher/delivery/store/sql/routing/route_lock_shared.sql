-- Blocks adding endpoints while this transaction routes; routers share the lock. A separate statement, so that the snapshots of
-- the next ones see every endpoint added before. Needs no index.
SELECT pg_advisory_xact_lock_shared(hashtext('holdfast.route'))
