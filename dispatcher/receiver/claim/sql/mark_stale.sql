-- Records a key as stale after all, in the transaction that claimed it: its subject's fence is beyond it.
-- Index: pk_inbox.
UPDATE {schema}.inbox SET outcome = 'stale' WHERE key = %(key)s RETURNING outcome::text
