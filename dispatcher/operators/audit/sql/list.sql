-- What people did, the newest first, before a number where one is given.
-- Walks pk_operator_action backwards, or ix_operator_action_target for one target; another filter that little passes reads the
-- whole, which people wrote, so it is not large.
SELECT id, acted_at, actor, action, target, reason, detail
FROM holdfast.operator_action
WHERE (%(before)s::bigint IS NULL OR id < %(before)s::bigint)
  AND (%(actor)s::text IS NULL OR actor = %(actor)s::text)
  -- A word is every action that begins with it: endpoint is endpoint.add, endpoint.set, ...
  AND (%(action)s::text IS NULL OR action = %(action)s::text OR starts_with(action, %(action)s::text || '.'))
  AND (%(target)s::text IS NULL OR target = %(target)s::text)
  AND (%(since)s::timestamptz IS NULL OR acted_at >= %(since)s::timestamptz)
  AND (%(until)s::timestamptz IS NULL OR acted_at < %(until)s::timestamptz)
ORDER BY id DESC
LIMIT %(limit)s
