-- Takes key and subject for this transaction, or says at once that another transaction has one of them.
-- No index: two advisory locks, released at commit or rollback; safe behind a transaction pooler.
SELECT pg_try_advisory_xact_lock(hashtextextended(%(schema)s || ' key ' || %(key)s, 0))
   AND pg_try_advisory_xact_lock(hashtextextended(%(schema)s || ' subject ' || %(subject)s, 0))
    AS locked
