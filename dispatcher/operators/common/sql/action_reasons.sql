-- Why operators resolved the named targets, the newest reason of each.
-- Uses ix_operator_action_target.
SELECT DISTINCT ON (target) target, reason
FROM holdfast.operator_action
WHERE action = ANY (%(actions)s::text[]) AND target = ANY (%(targets)s::text[])
ORDER BY target, id DESC
