-- Forgets the oldest keys that are older than the window, so many at most; the fences stay, so nothing old is applied again.
-- Index: ix_inbox_received_at, pk_inbox. Two of these share the work instead of waiting.
DELETE FROM {schema}.inbox
 WHERE key IN (
    SELECT key FROM {schema}.inbox
     WHERE received_at < now() - make_interval(secs => %(window_seconds)s)
     ORDER BY received_at LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
 )
