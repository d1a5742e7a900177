-- name: attempts
-- The newest attempts of an entry at an endpoint, the newest first.
-- Uses pk_attempt of the partitions from the entry's day on.
SELECT number, finished_at, outcome::text AS outcome, status, duration_ms, error, response
FROM holdfast.attempt
WHERE endpoint_id = %(endpoint_id)s AND subject_id = %(subject_id)s AND sequence = %(sequence)s
  AND finished_at >= %(written_at)s::timestamptz - interval '1 hour'
ORDER BY finished_at DESC, number DESC
LIMIT %(limit)s


-- name: count
-- The number of dead letters that `export` returns.
-- Uses uq_dead_letter_open where only open ones are wanted; else reads dead_letter.
SELECT count(*) AS count
FROM holdfast.dead_letter d
WHERE (%(endpoint_id)s::integer IS NULL OR d.endpoint_id = %(endpoint_id)s::integer)
  AND (%(subject_id)s::bigint IS NULL OR d.subject_id = %(subject_id)s::bigint)
  AND (%(reason)s::holdfast.dead_reason IS NULL OR d.reason = %(reason)s::holdfast.dead_reason)
  AND (NOT %(open)s OR d.resolution IS NULL) AND (NOT %(resolved)s OR d.resolution IS NOT NULL)


-- name: dismiss
-- Dismisses the open ones of some dead letters; the first resolution of a letter stays.
-- Uses pk_dead_letter.
UPDATE holdfast.dead_letter
SET resolution = 'dismissed', resolved_at = clock_timestamp(), resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id


-- name: export
-- Dead letters with bodies, the oldest first; read through a cursor in one snapshot.
-- Uses pk_dead_letter, or uq_dead_letter_open for open ones; pk_subject, pk_lane, pk_entry of the one partition.
SELECT d.id, p.name AS endpoint, s.name AS subject, d.sequence, d.key, e.type, d.reason::text AS reason, d.detail,
       d.attempts, d.created_at AS written_at, d.died_at, d.resolution::text AS resolution, d.resolved_at, d.resolved_by,
       coalesce(d.resolution IS NULL AND l.token IS NULL AND l.due_at IS NULL
                AND l.delivered_sequence < d.sequence, false) AS holds_lane,
       convert_from(e.body, 'UTF8') AS body
FROM holdfast.dead_letter d
JOIN holdfast.endpoint p ON p.id = d.endpoint_id
JOIN holdfast.subject s ON s.id = d.subject_id
LEFT JOIN holdfast.lane l ON l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
LEFT JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
WHERE (%(endpoint_id)s::integer IS NULL OR d.endpoint_id = %(endpoint_id)s::integer)
  AND (%(subject_id)s::bigint IS NULL OR d.subject_id = %(subject_id)s::bigint)
  AND (%(reason)s::holdfast.dead_reason IS NULL OR d.reason = %(reason)s::holdfast.dead_reason)
  AND (NOT %(open)s OR d.resolution IS NULL) AND (NOT %(resolved)s OR d.resolution IS NOT NULL)
ORDER BY d.id


-- name: list
-- Dead letters without bodies, the newest first, before an id if given.
-- Uses pk_dead_letter, or uq_dead_letter_open for open ones; pk_subject, pk_lane, pk_entry of the one partition.
SELECT d.id, p.name AS endpoint, s.name AS subject, d.sequence, d.key, e.type, d.reason::text AS reason, d.detail,
       d.attempts, d.created_at AS written_at, d.died_at, d.resolution::text AS resolution, d.resolved_at, d.resolved_by,
       coalesce(d.resolution IS NULL AND l.token IS NULL AND l.due_at IS NULL
                AND l.delivered_sequence < d.sequence, false) AS holds_lane
FROM holdfast.dead_letter d
JOIN holdfast.endpoint p ON p.id = d.endpoint_id
JOIN holdfast.subject s ON s.id = d.subject_id
LEFT JOIN holdfast.lane l ON l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
LEFT JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
WHERE (%(endpoint_id)s::integer IS NULL OR d.endpoint_id = %(endpoint_id)s::integer)
  AND (%(subject_id)s::bigint IS NULL OR d.subject_id = %(subject_id)s::bigint)
  AND (%(reason)s::holdfast.dead_reason IS NULL OR d.reason = %(reason)s::holdfast.dead_reason)
  AND (NOT %(open)s OR d.resolution IS NULL) AND (NOT %(resolved)s OR d.resolution IS NOT NULL)
  AND (%(before)s::bigint IS NULL OR d.id < %(before)s::bigint)
ORDER BY d.id DESC
LIMIT %(limit)s


-- name: lock
-- Locks the lanes of some dead letters, in the order in which routing and settlement lock them.
-- Uses pk_dead_letter, pk_lane.
SELECT l.endpoint_id, l.subject_id
FROM holdfast.lane l
WHERE (l.endpoint_id, l.subject_id) IN (
    SELECT d.endpoint_id, d.subject_id FROM holdfast.dead_letter d WHERE d.id = ANY (%(ids)s::bigint[])
)
ORDER BY l.endpoint_id, l.subject_id
FOR NO KEY UPDATE OF l


-- name: pass
-- Moves the lanes that some dead letters hold past them: due now, if more is to deliver. Lanes that are not held stay as they
-- are. Uses pk_dead_letter, pk_lane.
UPDATE holdfast.lane
SET delivered_sequence = d.sequence,
    due_at = CASE WHEN d.sequence < lane.last_sequence THEN now() END,
    attempt = 0,
    rescued = 0,
    tried_since_us = NULL
FROM holdfast.dead_letter d
WHERE d.id = ANY (%(ids)s::bigint[])
  AND lane.endpoint_id = d.endpoint_id AND lane.subject_id = d.subject_id
  AND lane.token IS NULL AND lane.due_at IS NULL AND lane.delivered_sequence < d.sequence
RETURNING d.id


-- name: scope
-- The ids of an endpoint and a subject; null for an unknown name.
-- Uses uq_endpoint_name, uq_subject_name.
SELECT (SELECT id FROM holdfast.endpoint WHERE name = %(endpoint)s) AS endpoint_id,
       (SELECT id FROM holdfast.subject WHERE name = %(subject)s) AS subject_id


-- name: take
-- Some dead letters with bodies, and the count (at most 1000) of entries that wait behind each that holds its lane.
-- Uses pk_dead_letter, pk_endpoint, pk_endpoint_pace, pk_subject, pk_lane, pk_entry.
SELECT d.id, p.name AS endpoint, s.name AS subject, d.sequence, d.key, e.type, d.reason::text AS reason, d.detail,
       d.attempts, d.created_at AS written_at, d.died_at, d.resolution::text AS resolution, d.resolved_at, d.resolved_by,
       coalesce(d.resolution IS NULL AND l.token IS NULL AND l.due_at IS NULL
                AND l.delivered_sequence < d.sequence, false) AS holds_lane,
       p.order_policy::text AS order_policy, p.state::text AS endpoint_state, d.window_waived,
       d.endpoint_id, d.subject_id, convert_from(e.body, 'UTF8') AS body, r.key_window_seconds,
       (SELECT count(*)
        FROM (
            SELECT FROM holdfast.entry w
            WHERE w.subject_id = d.subject_id AND w.sequence > d.sequence AND w.sequence <= $routed(l)
              AND NOT $cancelled(l, w.sequence)
              AND l.delivered_sequence < d.sequence
              -- Prunes partitions: a subject's created_at never falls.
              AND w.created_at >= d.created_at - interval '1 hour'
              AND (p.types = '{}' OR w.type = ANY (p.types)) AND $takes_stream(p.id, w.batch_no)
            LIMIT 1000
        ) AS behind) AS waiting
FROM holdfast.dead_letter d
JOIN holdfast.endpoint p ON p.id = d.endpoint_id
JOIN holdfast.subject s ON s.id = d.subject_id
LEFT JOIN holdfast.lane l ON l.endpoint_id = d.endpoint_id AND l.subject_id = d.subject_id
LEFT JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
JOIN holdfast.endpoint_pace r ON r.endpoint_id = d.endpoint_id
WHERE d.id = ANY (%(ids)s::bigint[])
ORDER BY d.id
