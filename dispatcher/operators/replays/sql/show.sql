-- One replay: its plan and its state.
-- Uses pk_replay.
SELECT id, verb::text AS verb, state::text AS state, filter, item_count, item_limit, reason, actor, created_at, applied_at,
       rate_per_second, counts, plan_sha256, outside_window, approved_by, approved_at, cancelled_by, cancelled_at,
       finished_at, coalesce(person, lower(regexp_replace(actor, '^token ', ''))) AS person
FROM holdfast.replay
WHERE id = %(id)s
