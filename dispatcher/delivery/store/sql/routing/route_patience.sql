-- Lets the routing of a large batch take its time. Its COMMIT waits for no disk: what a crash takes away of it is routed again, and
-- the claim, which comes behind it in the log, waits for both. Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('synchronous_commit', 'off', true)
