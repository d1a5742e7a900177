-- Items of a replay in sending order, after a place.
-- Uses ix_replay_item_place, pk_subject, pk_endpoint.
SELECT i.place, i.endpoint_id, p.name AS endpoint, i.subject_id, s.name AS subject, i.sequence, i.created_at AS written_at, i.key, i.new_key,
       i.kind::text AS kind, i.attempt, i.due_at, i.lease_until, i.outcome::text AS outcome, i.settled_at, i.detail
FROM holdfast.replay_item i
JOIN holdfast.endpoint p ON p.id = i.endpoint_id
JOIN holdfast.subject s ON s.id = i.subject_id
WHERE i.replay_id = %(id)s AND i.place > %(after)s
ORDER BY i.place
LIMIT %(limit)s
