-- Pauses, resumes or disables an endpoint; its lanes keep their position.
-- Uses uq_endpoint_name.
UPDATE holdfast.endpoint
SET state = %(state)s::holdfast.endpoint_state, state_reason = %(why)s, updated_at = now()
WHERE name = %(name)s
RETURNING name, state, state_reason
