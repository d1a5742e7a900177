-- One proposal.
-- Uses pk_proposal.
SELECT id, verb, target, detail, encode(sha256, 'hex') AS sha256, reason, actor, person, created_at, approved_by,
       approved_by_person, approved_at, applied_by, applied_at, cancelled_by, cancelled_at,
       CASE WHEN applied_at IS NOT NULL THEN 'applied' WHEN cancelled_at IS NOT NULL THEN 'cancelled'
            WHEN approved_at IS NOT NULL THEN 'approved' ELSE 'planned' END AS state
FROM holdfast.proposal
WHERE id = %(id)s
