-- Records that a proposal was applied, in the transaction that applies it.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET applied_by = %(actor)s, applied_at = now()
WHERE id = %(id)s
