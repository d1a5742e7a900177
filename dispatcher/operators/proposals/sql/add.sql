-- Records a proposal, unless the same one is open already.
-- Unique by uq_proposal_open.
INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person)
VALUES (%(id)s, %(verb)s, %(target)s, %(detail)s, %(sha256)s, %(reason)s, %(actor)s, %(person)s)
ON CONFLICT (verb, target, sha256) WHERE applied_at IS NULL AND cancelled_at IS NULL DO NOTHING
RETURNING id
