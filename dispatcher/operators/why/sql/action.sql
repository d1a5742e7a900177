-- Who changed an endpoint's state last, among the newest 10,000 actions.
-- Uses pk_operator_action backwards.
SELECT actor AS acted_by, acted_at
FROM holdfast.operator_action
WHERE id > (SELECT coalesce(max(id), 0) - 10000 FROM holdfast.operator_action)
  AND action = %(action)s AND target = %(endpoint)s
ORDER BY id DESC
LIMIT 1
