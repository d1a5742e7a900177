-- Locks a proposal until COMMIT.
-- Uses pk_proposal.
SELECT id
FROM holdfast.proposal
WHERE id = %(id)s
FOR UPDATE
