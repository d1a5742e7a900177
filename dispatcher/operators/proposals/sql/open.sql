-- The open proposal of a verb, a target and a digest.
-- Uses uq_proposal_open.
SELECT id
FROM holdfast.proposal
WHERE verb = %(verb)s AND target = %(target)s AND sha256 = %(sha256)s
  AND applied_at IS NULL AND cancelled_at IS NULL
