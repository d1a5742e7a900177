-- name: add
-- Records a proposal, unless the same one is open already.
-- Unique by uq_proposal_open.
INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person)
VALUES (%(id)s, %(verb)s, %(target)s, %(detail)s, %(sha256)s, %(reason)s, %(actor)s, %(person)s)
ON CONFLICT (verb, target, sha256) WHERE applied_at IS NULL AND cancelled_at IS NULL DO NOTHING
RETURNING id


-- name: apply
-- Records that a proposal was applied, in the transaction that applies it.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET applied_by = %(actor)s, applied_at = now()
WHERE id = %(id)s


-- name: approve
-- Records the approval of a second person.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET approved_by = %(actor)s, approved_by_person = %(person)s, approved_at = now()
WHERE id = %(id)s


-- name: cancel
-- Cancels a proposal.
-- Uses pk_proposal.
UPDATE holdfast.proposal
SET cancelled_by = %(actor)s, cancelled_at = now()
WHERE id = %(id)s


-- name: list
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


-- name: lock
-- Locks a proposal until COMMIT; `is_open` unless it was applied or cancelled.
-- Uses pk_proposal.
SELECT applied_at IS NULL AND cancelled_at IS NULL AS is_open
FROM holdfast.proposal
WHERE id = %(id)s
FOR UPDATE


-- name: named
-- The proposals whose id begins with some hex digits: at most two rows, to tell an ambiguous prefix.
-- Uses pk_proposal.
SELECT id
FROM holdfast.proposal
WHERE id BETWEEN rpad(%(digits)s::text, 32, '0')::uuid AND rpad(%(digits)s::text, 32, 'f')::uuid
LIMIT 2


-- name: open
-- The open proposal of a verb, a target and a digest.
-- Uses uq_proposal_open.
SELECT id
FROM holdfast.proposal
WHERE verb = %(verb)s AND target = %(target)s AND sha256 = %(sha256)s
  AND applied_at IS NULL AND cancelled_at IS NULL


-- name: show
-- One proposal.
-- Uses pk_proposal.
SELECT id, verb, target, detail, encode(sha256, 'hex') AS sha256, reason, actor, person, created_at, approved_by,
       approved_by_person, approved_at, applied_by, applied_at, cancelled_by, cancelled_at,
       CASE WHEN applied_at IS NOT NULL THEN 'applied' WHEN cancelled_at IS NOT NULL THEN 'cancelled'
            WHEN approved_at IS NOT NULL THEN 'approved' ELSE 'planned' END AS state
FROM holdfast.proposal
WHERE id = %(id)s
