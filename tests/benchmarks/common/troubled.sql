-- A day's failures, in this order; the copies are of one planned replay.

-- name: endpoints
WITH made AS (
    INSERT INTO holdfast.endpoint (name, url, secret_refs, created_at, updated_at)
    SELECT name, 'https://' || name || '.example/', '{env:S}'::text[], now(), now()
    FROM unnest(ARRAY['archive', 'risk']) name
    UNION ALL
    SELECT 'partner-' || n, 'https://partner.example/' || n, '{env:S}'::text[], now(), now()
    FROM generate_series(1, 4) n
    RETURNING name, created_at)
INSERT INTO holdfast.operator_action (actor, action, target, reason, acted_at)
SELECT 'benchmark', 'endpoint.add', name, 'benchmark', created_at FROM made;
UPDATE holdfast.endpoint SET starts_at = now() WHERE name LIKE 'partner-%';
UPDATE holdfast.stream SET query_id = md5('q')::uuid, adopted_at = created_at

-- name: rare
-- A tenth of one batch is of this type, the oldest one.
UPDATE holdfast.entry SET type = 'payout_hold.release'
WHERE batch_no = 1 AND subject_id % 10 = 0

-- name: dead
UPDATE holdfast.attempt a SET outcome = 'rejected', status = 422, response = 'no such merchant'
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id AND p.name = 'payouts'
WHERE l.subject_id % 20 IN (1, 2) AND a.endpoint_id = l.endpoint_id
  AND a.subject_id = l.subject_id AND a.sequence = l.last_sequence AND a.number = 4;
INSERT INTO holdfast.dead_letter (endpoint_id, subject_id, sequence, key, created_at, reason,
    detail, attempts, died_at, resolution, resolved_at, resolved_by)
SELECT l.endpoint_id, l.subject_id, l.last_sequence, e.key, e.created_at, 'rejected',
    'HTTP 422: no such merchant', 4, e.created_at + interval '4 seconds',
    CASE l.subject_id % 20 WHEN 2 THEN 'dismissed' END::holdfast.dead_resolution,
    CASE l.subject_id % 20 WHEN 2 THEN now() END,
    CASE l.subject_id % 20 WHEN 2 THEN 'benchmark' END
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id AND p.name = 'payouts'
JOIN holdfast.entry e ON e.subject_id = l.subject_id AND e.sequence = l.last_sequence
WHERE l.subject_id % 20 IN (1, 2) ORDER BY e.created_at, l.subject_id;
INSERT INTO holdfast.operator_action (actor, action, target, reason)
SELECT 'benchmark', 'dead.dismiss', 'dead letter ' || id, 'closed account'
FROM holdfast.dead_letter WHERE resolution IS NOT NULL

-- name: held_up
DELETE FROM holdfast.attempt a
USING holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id AND p.name = 'payouts'
WHERE (l.subject_id % 20 = 3 OR l.subject_id % 1000 = 4) AND a.endpoint_id = l.endpoint_id
  AND a.subject_id = l.subject_id AND a.sequence = l.last_sequence AND a.number = 4;
UPDATE holdfast.lane l SET delivered_sequence = l.last_sequence - 1,
    attempt = CASE WHEN l.subject_id % 20 = 1 THEN 4 WHEN l.subject_id % 20 = 3 THEN 3 ELSE 4
    END,
    due_at = CASE WHEN l.subject_id % 20 = 3
        THEN now() + (l.subject_id % 7200) * interval '1 second' END,
    token = CASE WHEN l.subject_id % 1000 = 4 THEN md5(l.subject_id::text)::uuid END,
    lease_until = CASE WHEN l.subject_id % 1000 = 4 THEN now() + interval '50 minutes' END
FROM holdfast.endpoint p
WHERE p.id = l.endpoint_id AND p.name = 'payouts'
  AND (l.subject_id % 20 IN (1, 3) OR l.subject_id % 1000 = 4)

-- name: behind
INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence,
    claimed_sequence, attempt, priority, due_at, head_created_at)
SELECT p.id, s.id, CASE p.name WHEN 'risk' THEN 1 ELSE 0 END, s.last_sequence,
    CASE p.name WHEN 'risk' THEN 1 ELSE 0 END, CASE p.name WHEN 'archive' THEN 1 ELSE 0 END, 0,
    CASE p.name WHEN 'risk' THEN now() - (s.id % 600) * interval '1 second'
        ELSE now() + (s.id % 1800) * interval '1 second' END,
    e.created_at
FROM holdfast.endpoint p
CROSS JOIN holdfast.subject s
JOIN holdfast.entry e ON e.subject_id = s.id
    AND e.sequence = CASE p.name WHEN 'risk' THEN 2 ELSE 1 END
WHERE p.name IN ('archive', 'risk') ORDER BY 1, 2;
INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
    outcome, status, duration_ms, error, retry_at)
SELECT l.endpoint_id, l.subject_id, 1, 1, t.at, md5(l.subject_id || p.name)::uuid,
    CASE p.name WHEN 'risk' THEN 'delivered' ELSE 'unknown' END::holdfast.outcome,
    CASE p.name WHEN 'risk' THEN 200 END, 20 + l.subject_id % 80,
    CASE p.name WHEN 'archive' THEN 'no answer in 30 s' END,
    CASE p.name WHEN 'archive' THEN t.at + interval '30 minutes' END
FROM holdfast.lane l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id AND p.name IN ('archive', 'risk')
CROSS JOIN LATERAL (SELECT now() - l.subject_id * 7919 % 100000 * interval '100 milliseconds'
    AS at) t
ORDER BY t.at;
UPDATE holdfast.endpoint_pace SET breaker = 'open', breaker_since = now() - interval '3 hours',
    breaker_until = now() + interval '1 minute', breaker_reason = 'no answer in 30 s',
    failures = 10, openings = 9
WHERE endpoint_id = (SELECT id FROM holdfast.endpoint WHERE name = 'archive')

-- name: set_aside
UPDATE holdfast.batch SET row_count = row_count + 20, quarantined_count = 20;
INSERT INTO holdfast.quarantine (batch_no, reason, detail, row, quarantined_at, resolution,
    resolved_at, resolved_by)
SELECT b.batch_no,
    CASE n % 3 WHEN 0 THEN 'bad_amount' WHEN 1 THEN 'bad_time' ELSE 'malformed'
    END::holdfast.quarantine_reason, 'amount is not a number', '{"merchant_id": "m_1"}',
    b.written_at, CASE WHEN n > 2 THEN 'dismissed' END::holdfast.quarantine_resolution,
    CASE WHEN n > 2 THEN now() END, CASE WHEN n > 2 THEN 'benchmark' END
FROM holdfast.batch b CROSS JOIN generate_series(1, 20) n ORDER BY b.batch_no, n;
INSERT INTO holdfast.operator_action (actor, action, target, reason)
SELECT 'benchmark', 'quarantine.dismiss', 'quarantine ' || id, 'a test of the source'
FROM holdfast.quarantine WHERE resolution IS NOT NULL

-- name: suppressed
UPDATE holdfast.batch SET row_count = row_count + 20, suppressed_count = 20;
INSERT INTO holdfast.entry_key (key, content, batch_no)
SELECT md5(batch_no || ' suppressed ' || n)::uuid, md5('content')::uuid, batch_no
FROM holdfast.batch CROSS JOIN generate_series(1, 20) n ORDER BY 3;
INSERT INTO holdfast.suppressed (batch_no, key, suppressed_at, subject_id, type, occurred_at,
    priority, cause, key_parts, data)
SELECT batch_no, md5(batch_no || ' suppressed ' || n)::uuid, written_at, 1 + batch_no % 100,
    'payout_hold.block', written_at, 0,
    CASE n % 10 WHEN 0 THEN 'overtaken' ELSE 'repeated' END::holdfast.suppressed_cause,
    '["k"]', '{"merchant_id":"m_1"}'
FROM holdfast.batch CROSS JOIN generate_series(1, 20) n ORDER BY 1, 2

-- name: diverged
INSERT INTO holdfast.divergence (batch_no, digest, run_id, row_count, quarantined_count,
    differing_count, found_at)
SELECT batch_no, sha256('other'), run_id, row_count, quarantined_count, 50, written_at
FROM holdfast.batch WHERE batch_no % 50 = 3;
INSERT INTO holdfast.divergence_row (divergence_id, key, side, subject, type, occurred_at, body)
SELECT v.id, e.key, 'changed', s.name, e.type, e.occurred_at,
    convert_from(e.body, 'UTF8')
FROM holdfast.divergence v
JOIN holdfast.batch b USING (batch_no)
CROSS JOIN LATERAL (SELECT * FROM holdfast.entry e WHERE e.batch_no = b.batch_no
    AND e.created_at = b.written_at ORDER BY e.key LIMIT 50) e
JOIN holdfast.subject s ON s.id = e.subject_id

-- name: people
INSERT INTO holdfast.operator_action (actor, action, target, reason, acted_at)
SELECT 'person-' || n % 40, (ARRAY['entry.read', 'endpoint.paused', 'endpoint.active',
    'quarantine.read', 'replay.plan'])[1 + n % 5], 'target-' || n % 5000, 'as agreed',
    now() - (100000 - n) * interval '1 second'
FROM generate_series(1, least(100000, (SELECT count(*) FROM holdfast.subject))) n;
INSERT INTO holdfast.dispatcher_instance (id, host, pid, version, heartbeat_at, in_flight)
SELECT md5(n::text)::uuid, 'host-' || n, 100 + n, '0', now() - n * interval '20 seconds', 12
FROM generate_series(1, 8) n;
INSERT INTO holdfast.proposal (id, verb, target, detail, sha256, reason, actor, person,
    created_at)
SELECT md5(n || 'proposal')::uuid, 'quarantine.requeue', 'quarantine ' || n, '{}',
    sha256(n::text::bytea), 'as agreed', 'a', 'a', now() - n * interval '1 minute'
FROM generate_series(1, 1000) n

-- name: copied_replays
INSERT INTO holdfast.replay (id, verb, state, filter, item_count, reason, actor, created_at,
    applied_at, finished_at, rate_per_second, counts, plan_sha256)
SELECT md5(n || 'replay')::uuid, verb, CASE n WHEN 1 THEN 'applying' ELSE 'applied'
    END::holdfast.replay_state, filter, item_count, reason, actor,
    created_at - n * interval '10 minutes', created_at - n * interval '9 minutes',
    CASE WHEN n > 1 THEN created_at - n * interval '8 minutes' END, 100, counts, plan_sha256
FROM holdfast.replay CROSS JOIN generate_series(1, 200) n WHERE id = %(id)s

-- name: copied_items
INSERT INTO holdfast.replay_item (replay_id, endpoint_id, subject_id, sequence, created_at, key,
    kind, place, outcome, settled_at, attempt, due_at)
SELECT md5(n || 'replay')::uuid, endpoint_id, subject_id, sequence, created_at, key, kind,
    place, CASE WHEN done THEN 'delivered' END::holdfast.outcome, CASE WHEN done THEN now() END,
    1, CASE WHEN NOT done THEN now() END
FROM holdfast.replay_item CROSS JOIN generate_series(1, 2) n,
    LATERAL (SELECT n = 2 OR place %% 2 = 0 AS done) d
WHERE replay_id = %(id)s

-- name: copied_plans
INSERT INTO holdfast.operator_action (actor, action, target, reason, acted_at)
SELECT actor, 'replay.plan', 'replay ' || id, reason, created_at FROM holdfast.replay
