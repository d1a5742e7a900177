-- Changes a key to stale, in the transaction that claimed it: its subject's sequence has advanced past it.
-- Index: pk_inbox.
UPDATE {schema}.inbox SET outcome = 'stale' WHERE key = %(key)s RETURNING outcome::text
