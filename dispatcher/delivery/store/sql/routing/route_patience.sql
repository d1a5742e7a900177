-- Raises the time limits for routing a large batch. Its COMMIT does not wait for the disk: a crash only undoes routing, which is
-- repeated, and the claim, which follows it in the WAL, waits for both. Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('synchronous_commit', 'off', true)
