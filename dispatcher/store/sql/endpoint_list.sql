-- Every endpoint with its backlog: lanes that wait, are leased, or are stopped by a dead letter.
-- Uses pk_lane and uq_dead_letter_open.
SELECT p.name, p.url, p.state, p.state_reason, p.order_policy, p.types, p.secret_refs,
       p.starts_at,
       (SELECT count(*) FROM holdfast.lane l
         WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL) AS waiting_lanes,
       (SELECT count(*) FROM holdfast.lane l
         WHERE l.endpoint_id = p.id AND l.token IS NOT NULL) AS leased_lanes,
       (SELECT count(*) FROM holdfast.dead_letter d
         WHERE d.endpoint_id = p.id AND d.resolution IS NULL) AS dead_letters
FROM holdfast.endpoint p
ORDER BY p.name
