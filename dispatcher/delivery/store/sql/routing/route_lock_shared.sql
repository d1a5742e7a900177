-- Keeps endpoints from being added while this transaction routes. A statement of its own, so that the snapshots of the
-- next ones hold every endpoint added before; routers share it. Needs no index.
SELECT pg_advisory_xact_lock_shared(hashtext('holdfast.route'))
