-- Disables an endpoint that answered 410, with its audit row; does nothing if it is disabled already.
-- Uses pk_endpoint.
WITH gone AS (
    UPDATE holdfast.endpoint
    SET state = 'disabled', state_reason = %(reason)s, updated_at = now()
    WHERE id = %(endpoint_id)s AND state <> 'disabled'
    RETURNING name
)
INSERT INTO holdfast.operator_action (actor, action, target, reason)
SELECT 'dispatcher', 'endpoint.disabled', name, %(reason)s
FROM gone
