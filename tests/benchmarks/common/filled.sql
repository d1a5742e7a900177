-- An outbox after a busy day: see filled.py, which says what is taken of it.

-- name: endpoints
WITH made AS (
    INSERT INTO holdfast.endpoint (name, url, secret_refs)
    VALUES ('payouts', 'https://payouts.example/', '{env:S}'),
           ('ledger', 'https://ledger.example/', '{env:S}')
    RETURNING name, created_at)
INSERT INTO holdfast.operator_action (actor, action, target, reason, acted_at)
SELECT 'benchmark', 'endpoint.add', name, 'benchmark', created_at FROM made

-- name: batches
WITH made AS (INSERT INTO holdfast.stream (name) VALUES ('payouts'))
INSERT INTO holdfast.batch (stream, query_id, batch_id, run_id, epoch, row_count, entry_count,
    duplicate_count, differing_count, suppressed_count, quarantined_count, digest, written_at,
    routed_at)
SELECT 'payouts', md5('q')::uuid, n, md5('r')::uuid, 1, %(a_batch)s, %(a_batch)s, 0, 0, 0, 0,
    sha256(n::text::bytea), at, at
FROM generate_series(0, %(batches)s - 1) n,
    LATERAL (SELECT now() - interval '23 hours' + n * interval '22 hours' / %(batches)s AS at) t
ORDER BY n

-- name: subjects
WITH made AS (
    INSERT INTO holdfast.subject (name, last_sequence, last_created_at)
    SELECT 'm_' || n, %(each)s, (SELECT written_at FROM holdfast.batch
        WHERE batch_no = 1 + ((%(each)s - 1) * %(subjects)s::bigint + n) / %(a_batch)s)
    FROM generate_series(0, %(subjects)s - 1) n ORDER BY n
    RETURNING id, last_created_at
)
INSERT INTO holdfast.transition (subject_id, stream, last_type, last_occurred_at, updated_at)
SELECT id, 'payouts', 'payout_hold.block', now(), last_created_at FROM made

-- name: entries
INSERT INTO holdfast.entry (subject_id, sequence, created_at, key, type, occurred_at, priority,
    batch_no, body)
SELECT n %% %(subjects)s + 1, n / %(subjects)s + 1, b.written_at, md5(n::text)::uuid,
    'payout_hold.block', b.written_at, 0, b.batch_no, convert_to(format(
    '{"type":"payout_hold.block","timestamp":"2026-11-02T12:15:00Z","sequence":%%s,"key":'
    '"hf_%%s","data":{"exposure_minor":8500000,"merchant_id":"m_%%s","note":"%%s"}}',
    n / %(subjects)s + 1, md5(n::text), n %% %(subjects)s, repeat('x', 150)), 'UTF8')
FROM generate_series(0, %(entries)s - 1) n
JOIN holdfast.batch b ON b.batch_no = n / %(a_batch)s + 1 ORDER BY n

-- name: keys
INSERT INTO holdfast.entry_key (key, content, batch_no)
SELECT key, substring(encode(sha256(convert_to(
    replace(convert_from(body, 'UTF8'), '"sequence":' || sequence, '"sequence":'), 'UTF8')),
    'hex') FROM 1 FOR 32)::uuid, batch_no
FROM holdfast.entry ORDER BY batch_no

-- name: lanes
INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence,
    claimed_sequence, priority, head_created_at)
SELECT p.id, s.id, s.last_sequence, s.last_sequence, s.last_sequence, 0, s.last_created_at
FROM holdfast.endpoint p, holdfast.subject s ORDER BY 1, 2

-- name: waiting_lanes
INSERT INTO holdfast.lane (endpoint_id, subject_id, delivered_sequence, last_sequence, priority,
    due_at, head_created_at)
SELECT p.id, s.id, 0, s.last_sequence, 0, now(), e.created_at
FROM holdfast.endpoint p CROSS JOIN holdfast.subject s
JOIN holdfast.entry e ON e.subject_id = s.id AND e.sequence = 1 ORDER BY 1, 2

-- name: attempts
INSERT INTO holdfast.attempt (endpoint_id, subject_id, sequence, number, finished_at, token,
    outcome, status, duration_ms, response, retry_at)
SELECT p.id, n %% %(subjects)s + 1, n / %(subjects)s + 1, number,
    b.written_at + number * interval '1 second', md5(n || p.name)::uuid,
    CASE WHEN number = last THEN 'delivered' WHEN number = 2 THEN 'unknown' ELSE 'failed'
    END::holdfast.outcome, CASE WHEN number = last THEN 200 WHEN number = 2 THEN NULL ELSE 503
    END, 12, CASE WHEN number <> last THEN 'unavailable' END,
    CASE WHEN number <> last THEN b.written_at + (number + 1) * interval '1 second' END
FROM generate_series(0, %(entries)s - 1) n
JOIN holdfast.batch b ON b.batch_no = n / %(a_batch)s + 1
CROSS JOIN (SELECT id, name, CASE name WHEN 'payouts' THEN 4 ELSE 1 END AS last
    FROM holdfast.endpoint) p
CROSS JOIN LATERAL generate_series(1, last) number
ORDER BY n, number
