-- Proposals without details, the newest first, before a moment and about a target if given.
-- Walks ix_proposal_created_at backwards; people make them, so there are few.
SELECT id, verb, target, encode(sha256, 'hex') AS sha256, reason, actor, person, created_at, approved_by,
       approved_by_person, approved_at, applied_by, applied_at, cancelled_by, cancelled_at,
       CASE WHEN applied_at IS NOT NULL THEN 'applied' WHEN cancelled_at IS NOT NULL THEN 'cancelled'
            WHEN approved_at IS NOT NULL THEN 'approved' ELSE 'planned' END AS state
FROM holdfast.proposal
WHERE (%(before)s::timestamptz IS NULL OR created_at < %(before)s::timestamptz)
  AND (%(target)s::text IS NULL OR target = %(target)s::text)
  AND (NOT %(open)s OR (applied_at IS NULL AND cancelled_at IS NULL))
ORDER BY created_at DESC, id
LIMIT %(limit)s
