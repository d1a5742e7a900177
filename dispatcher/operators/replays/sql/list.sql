-- Replays, the newest first, created before a moment if given.
-- Reads all of replay, a small table of people's plans.
SELECT id, verb::text AS verb, state::text AS state, filter, item_count, reason, actor, created_at, applied_at,
       rate_per_second, cancelled_at, finished_at
FROM holdfast.replay
WHERE %(before)s::timestamptz IS NULL OR created_at < %(before)s::timestamptz
ORDER BY created_at DESC, id
LIMIT %(limit)s
