-- The proposals whose id begins with some hex digits: at most two rows, to tell an ambiguous prefix.
-- Uses pk_proposal.
SELECT id
FROM holdfast.proposal
WHERE id BETWEEN rpad(%(digits)s::text, 32, '0')::uuid AND rpad(%(digits)s::text, 32, 'f')::uuid
LIMIT 2
