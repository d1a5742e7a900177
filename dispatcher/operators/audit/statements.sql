-- name: list
-- Actions of people, the newest first, before an id if given.
-- Walks pk_operator_action backwards, or ix_operator_action_target for one target; a rare actor or action scans the table, which
-- is small because people write it.
SELECT id, acted_at, actor, action, target, reason, detail
FROM holdfast.operator_action
WHERE (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
  AND (%(actor)s::text IS NULL OR actor = %(actor)s::text)
  -- `endpoint` matches endpoint.add, endpoint.set, ...
  AND (%(action)s::text IS NULL OR action = %(action)s::text OR starts_with(action, %(action)s::text || '.'))
  AND (%(target)s::text IS NULL OR target = %(target)s::text)
  AND (%(since)s::timestamptz IS NULL OR acted_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR acted_at < %(until)s::timestamptz)
ORDER BY id DESC
LIMIT %(limit)s
