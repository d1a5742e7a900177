-- Deletes keys older than the window, oldest first, up to the limit. Subjects stay, so no old delivery is applied again.
-- Index: ix_inbox_received_at, pk_inbox. Concurrent runs share the work and do not wait for each other.
DELETE FROM {schema}.inbox
 WHERE key IN (
    SELECT key FROM {schema}.inbox
     WHERE received_at < now() - make_interval(secs => %(window_seconds)s)
     ORDER BY received_at LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
 )
