-- The newest reason that operators gave for one of the given actions on each target.
-- Uses ix_operator_action_target.
SELECT DISTINCT ON (target) target, reason
FROM holdfast.operator_action
WHERE action = ANY (%(actions)s::text[]) AND target = ANY (%(targets)s::text[])
ORDER BY target, id DESC
