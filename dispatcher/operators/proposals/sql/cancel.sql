-- Cancels a proposal.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET cancelled_by = %(actor)s, cancelled_at = now()
WHERE id = %(id)s
