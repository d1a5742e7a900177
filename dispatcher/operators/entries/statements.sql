-- name: batches
-- The newest batches up to a number, of a stream and between two times if given, that together have at most N entries (at least
-- one batch). Walks uq_batch_batch_no backwards.
SELECT count(*) AS batches, min(batch_no) AS first_batch_no, max(batch_no) AS last_batch_no,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM (
    SELECT batch_no, written_at, sum(entry_count) OVER (ORDER BY batch_no DESC) - entry_count AS newer
    FROM (
        SELECT batch_no, written_at, entry_count
        FROM holdfast.batch
        WHERE batch_no <= %(up_to_batch_no)s AND entry_count > 0
          AND (%(stream)s::text IS NULL OR stream = %(stream)s::text)
          AND written_at >= %(since)s::timestamptz AND written_at < %(until)s::timestamptz
        ORDER BY batch_no DESC
        LIMIT %(batches)s
    ) newest
) counted
WHERE newer < %(entries)s


-- name: delivery
-- The delivery of an entry at each endpoint that takes it, or that it was sent to: lane and head, an open dead letter,
-- attempts. Uses pk_lane, pk_endpoint_pace, uq_dead_letter_open, pk_attempt, pk_entry.
SELECT p.name AS endpoint, p.state::text AS endpoint_state, r.breaker::text AS breaker, r.breaker_until,
       CASE WHEN r.held_until > now() THEN r.held_until END AS held_until,
       l.delivered_sequence, $routed(l) AS last_sequence, l.due_at, l.lease_until, head.sequence AS head_sequence,
       d.reason::text AS dead_reason, d.detail AS dead_detail, d.died_at,
       tried.attempts, tried.delivered_at, tried.outcomes[1] AS last_outcome, tried.finished_at AS last_tried_at
FROM holdfast.endpoint p
JOIN holdfast.endpoint_pace r ON r.endpoint_id = p.id
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = %(subject_id)s
LEFT JOIN LATERAL (
    SELECT e.sequence
    FROM holdfast.entry e
    WHERE e.subject_id = %(subject_id)s
      AND e.sequence > l.delivered_sequence AND e.sequence <= %(sequence)s AND NOT $cancelled(l, e.sequence)
      -- Prunes partitions, as the claim does.
      AND e.created_at >= l.head_created_at - interval '1 hour'
      AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
    ORDER BY e.sequence
    LIMIT 1
) head ON true
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = %(subject_id)s AND d.sequence = %(sequence)s AND d.resolution IS NULL
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts, max(a.finished_at) AS finished_at,
           array_agg(a.outcome::text ORDER BY a.finished_at DESC) AS outcomes,
           min(a.finished_at) FILTER (WHERE a.outcome = 'delivered') AS delivered_at
    FROM holdfast.attempt a
    WHERE a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
      AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
) tried
WHERE tried.attempts > 0
   OR (p.types = '{}' OR %(type)s = ANY (p.types)) AND $takes_stream(p.id, %(batch_no)s)
      AND (p.starts_after IS NULL OR %(batch_no)s > p.starts_after OR %(batch_no)s::bigint <@ p.starts_late)
ORDER BY p.name


-- name: find
-- The entry that a batch wrote under a key; no row if it was suppressed, or its partition was dropped.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT e.subject_id, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.traceparent,
       convert_from(e.body, 'UTF8') AS body
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s AND e.key = %(key)s


-- name: list
-- Entries of a run of batches without bodies, the newest first, before a position (batch, subject, sequence) if given.
-- Uses ix_entry_batch_no of the partitions between the two moments, then uq_batch_batch_no, pk_subject.
SELECT e.key, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id
FROM (
    SELECT e.key, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at, e.priority, e.batch_no
    FROM holdfast.entry e
    WHERE e.batch_no BETWEEN %(first_batch_no)s
          -- A bound of its own: a BRIN index cannot use a comparison of rows.
          AND least(%(last_batch_no)s, coalesce(%(before_batch_no)s::bigint, %(last_batch_no)s))
      -- An entry has its batch's moment; as a range, it prunes partitions.
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
      AND (%(stream)s::text IS NULL OR e.batch_no IN (
          SELECT b.batch_no FROM holdfast.batch b
          WHERE b.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s AND b.stream = %(stream)s::text))
      AND (%(before_batch_no)s::bigint IS NULL
           OR (e.batch_no, e.subject_id, e.sequence)
            < (%(before_batch_no)s::bigint, %(before_subject_id)s::bigint, %(before_sequence)s::bigint))
    ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
    LIMIT %(limit)s
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no
JOIN holdfast.subject s ON s.id = e.subject_id
ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC


-- name: list_data
-- As `list`, of the entries whose `data` has a member with a given value, with `data` and with where each was delivered: the
-- outcome by its receipt, else `delivered`. Uses what `list` uses, and pk_attempt for the entries of the page.
SELECT e.key, s.name AS subject, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id, e.data, coalesce(there.delivered, '[]') AS delivered
FROM (
    SELECT e.key, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at, e.priority, e.batch_no, body.data
    FROM holdfast.entry e
    CROSS JOIN LATERAL (SELECT convert_from(e.body, 'UTF8')::jsonb -> 'data' AS data) body
    WHERE e.batch_no BETWEEN %(first_batch_no)s
          AND least(%(last_batch_no)s, coalesce(%(before_batch_no)s::bigint, %(last_batch_no)s))
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
      AND (%(subject_id)s::bigint IS NULL OR e.subject_id = %(subject_id)s::bigint)
      AND (%(stream)s::text IS NULL OR e.batch_no IN (
          SELECT b.batch_no FROM holdfast.batch b
          WHERE b.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s AND b.stream = %(stream)s::text))
      AND (%(before_batch_no)s::bigint IS NULL
           OR (e.batch_no, e.subject_id, e.sequence)
            < (%(before_batch_no)s::bigint, %(before_subject_id)s::bigint, %(before_sequence)s::bigint))
      AND body.data ->> %(member)s::text = %(value)s::text
    ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC
    LIMIT %(limit)s
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no
JOIN holdfast.subject s ON s.id = e.subject_id
CROSS JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object('endpoint', p.name, 'outcome', a.outcome) ORDER BY p.name) AS delivered
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        -- A repeat is answered with `duplicate`: what the first answer said is what was done.
        SELECT coalesce(a.receipt::json ->> 'outcome', 'delivered') AS outcome
        FROM holdfast.attempt a
        WHERE a.endpoint_id = p.id AND a.subject_id = e.subject_id AND a.sequence = e.sequence
          AND a.outcome = 'delivered' AND a.finished_at >= e.created_at - interval '1 hour'
        ORDER BY a.finished_at
        LIMIT 1
    ) a
) there
ORDER BY e.batch_no DESC, e.subject_id DESC, e.sequence DESC


-- name: of_subject
-- Entries of one subject without bodies, the newest first, below a sequence if given.
-- Uses pk_entry backwards, in the partitions between the two times, and uq_batch_batch_no.
SELECT e.key, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority, e.batch_no, e.subject_id,
       b.stream, b.query_id, b.batch_id
FROM holdfast.entry e
JOIN holdfast.batch b USING (batch_no)
WHERE e.subject_id = %(subject_id)s
  AND (%(before_sequence)s::bigint IS NULL OR e.sequence < %(before_sequence)s::bigint)
  AND e.created_at >= %(since)s::timestamptz AND e.created_at < %(until)s::timestamptz
  AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
  AND (%(batch_no)s::bigint IS NULL OR e.batch_no = %(batch_no)s::bigint)
ORDER BY e.sequence DESC
LIMIT %(limit)s


-- name: tail
-- Entries of a batch without bodies, by subject and sequence, after a position.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT e.key, s.name AS subject, e.subject_id, e.sequence, e.type, e.occurred_at, e.created_at AS written_at, e.priority
FROM holdfast.entry e
JOIN holdfast.subject s ON s.id = e.subject_id
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
  AND (%(subject)s::text IS NULL OR s.name = %(subject)s::text)
  AND (%(type)s::text IS NULL OR e.type = %(type)s::text)
  AND (e.subject_id, e.sequence) > (%(after_subject_id)s::bigint, %(after_sequence)s::bigint)
ORDER BY e.subject_id, e.sequence
LIMIT %(limit)s


-- name: tail_batches
-- Batches after a number, or with one of the skipped numbers: a lower number may commit later.
-- Uses uq_batch_batch_no.
SELECT batch_no, stream, query_id, batch_id, written_at, entry_count
FROM holdfast.batch
WHERE batch_no > %(after)s OR batch_no = ANY (%(missing)s::bigint[])
ORDER BY batch_no
LIMIT %(limit)s


-- name: tail_newest
-- The highest batch number; 0 without any.
-- Uses uq_batch_batch_no.
SELECT coalesce(max(batch_no), 0) AS batch_no FROM holdfast.batch
