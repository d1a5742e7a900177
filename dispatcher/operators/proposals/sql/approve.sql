-- Records the approval of a second person.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET approved_by = %(actor)s, approved_by_person = %(person)s, approved_at = now()
WHERE id = %(id)s
