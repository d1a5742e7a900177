-- name: accept
-- Accepts a diverged replay, once.
-- Uses pk_divergence.
UPDATE holdfast.divergence
SET accepted_at = clock_timestamp(), accepted_by = %(person)s
WHERE id = %(id)s AND accepted_at IS NULL
RETURNING accepted_at, accepted_by


-- name: accept_facts
-- Of a diverged replay: a later batch that its query wrote since, the stream that its stream acts for, how many of its new keys
-- are older than the newest decision of their subject (as common/newest_decision compares them), and the new keys that a person
-- accepted within 24 hours. Uses pk_batch, pk_stream, pk_divergence_row, uq_subject_name, pk_transition; reads all of divergence, a small table.
SELECT (SELECT max(b.batch_id) FROM holdfast.batch b JOIN holdfast.divergence v ON v.id = %(id)s
        WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s AND b.batch_id > %(batch_id)s
          AND b.written_at > v.found_at) AS next_batch_id,
    (SELECT s.acts_for FROM holdfast.stream s WHERE s.name = %(stream)s) AS acts_for,
    (SELECT count(*)
     FROM holdfast.divergence_row r
     JOIN holdfast.subject s ON s.name = r.subject
     WHERE r.divergence_id = %(id)s AND r.side = 'only_in_replay' AND EXISTS (
         SELECT FROM holdfast.transition t
         WHERE t.subject_id = s.id
           AND (t.stream = %(stream)s
                OR regexp_replace(t.last_type, '[.][^.]*$', '') = regexp_replace(r.type, '[.][^.]*$', ''))
           AND (t.last_occurred_at > r.occurred_at
                OR (t.last_occurred_at = r.occurred_at AND t.last_type <> r.type))
     )) AS overtaking,
    (SELECT coalesce(sum(v.differing_count - k.others), 0)::bigint
     FROM holdfast.divergence v
     CROSS JOIN LATERAL (
         SELECT count(*) AS others FROM holdfast.divergence_row r
         WHERE r.divergence_id = v.id AND r.side <> 'only_in_replay'
     ) k
     WHERE to_jsonb(v) ->> 'accepted_by' = %(person)s
       AND (to_jsonb(v) ->> 'accepted_at')::timestamptz > now() - interval '24 hours') AS used


-- name: accepted
-- The accepted replays of a stream's batches.
-- Reads all of divergence, a small table; uses uq_batch_batch_no.
SELECT b.query_id, v.digest
FROM holdfast.divergence v
JOIN holdfast.batch b USING (batch_no)
WHERE b.stream = %(stream)s AND to_jsonb(v) ->> 'accepted_at' IS NOT NULL


-- name: adopt
-- Adopts another query id. A run of the old one is refused at its next batch, because the sink compares the query id under the
-- same row lock. Uses pk_stream.
UPDATE holdfast.stream
SET query_id = %(query_id)s, adopted_at = clock_timestamp()
WHERE name = %(stream)s
RETURNING name, query_id, epoch, adopted_at


-- name: batch_delivery
-- The delivery of a batch's entries at each endpoint that takes some of them.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment, pk_lane, uq_dead_letter_open.
SELECT p.name AS endpoint, p.state::text AS state, count(*) AS entries,
       count(*) FILTER (WHERE d.id IS NULL AND coalesce(e.sequence <= l.delivered_sequence, false)) AS delivered,
       count(*) FILTER (WHERE d.id IS NULL AND NOT coalesce(e.sequence <= l.delivered_sequence, false)) AS waiting,
       count(d.id) AS dead_letters
FROM holdfast.entry e
JOIN holdfast.endpoint p
  ON (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
 AND (p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)
LEFT JOIN holdfast.lane l ON l.endpoint_id = p.id AND l.subject_id = e.subject_id
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = p.id AND d.subject_id = e.subject_id AND d.sequence = e.sequence AND d.resolution IS NULL
WHERE e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
GROUP BY p.id
ORDER BY p.name


-- name: batch_elsewhere
-- The checkpoints of a stream that have a batch with this id, the newest first.
-- Uses pk_batch: a stream has few checkpoints.
SELECT query_id FROM holdfast.batch
WHERE stream = %(stream)s AND batch_id = %(batch_id)s
ORDER BY batch_no DESC


-- name: batch_find
-- A batch of the ledger by its ids, with the source offsets of the one before it; no row if it was not written.
-- Uses pk_batch twice.
SELECT b.stream, b.query_id, b.batch_id, b.batch_no, b.run_id, b.epoch, b.row_count, b.entry_count, b.duplicate_count,
       b.differing_count, b.suppressed_count, b.quarantined_count, encode(b.digest, 'hex') AS digest, b.source_offsets,
       p.source_offsets AS offsets_before, b.written_at, b.routed_at
FROM holdfast.batch b
LEFT JOIN holdfast.batch p ON p.stream = b.stream AND p.query_id = b.query_id AND p.batch_id = b.batch_id - 1
WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s AND b.batch_id = %(batch_id)s


-- name: batch_list
-- The newest batches of one checkpoint of a stream, before a batch id if given.
-- Uses pk_batch.
SELECT b.batch_id, b.batch_no, b.written_at, b.row_count, b.entry_count, b.duplicate_count, b.differing_count,
       b.suppressed_count, b.quarantined_count, b.epoch, b.run_id, b.routed_at,
       (SELECT count(*) FROM holdfast.divergence v WHERE v.batch_no = b.batch_no) AS divergences
FROM holdfast.batch b
WHERE b.stream = %(stream)s AND b.query_id = %(query_id)s
  AND (%(before)s::bigint IS NULL OR b.batch_id < %(before)s::bigint)
ORDER BY b.batch_id DESC
LIMIT %(limit)s


-- name: batch_quarantined
-- The quarantined rows of a batch, by reason and rule. Before revision 0033 `rule` is that of `older`.
-- Uses ix_quarantine_batch_no.
SELECT q.reason::text AS reason, q.by_rule AS rule, count(*) AS rows, count(*) FILTER (WHERE q.resolution IS NULL) AS open
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
WHERE q.batch_no = %(batch_no)s
GROUP BY q.reason, q.by_rule
ORDER BY q.reason, q.by_rule


-- name: batch_types
-- The stored entries of a batch, by type.
-- Uses ix_entry_batch_no of the one partition that holds the batch's moment.
SELECT type, count(*) AS entries, count(DISTINCT subject_id) AS subjects
FROM holdfast.entry
WHERE batch_no = %(batch_no)s AND created_at = %(written_at)s
GROUP BY type
ORDER BY type


-- name: checkpoints
-- The checkpoints (query ids) that wrote to a stream, the newest first.
-- Uses pk_batch.
SELECT query_id, count(*) AS batches, min(batch_id) AS first_batch_id, max(batch_id) AS last_batch_id,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM holdfast.batch
WHERE stream = %(stream)s
GROUP BY query_id
ORDER BY max(batch_no) DESC


-- name: divergence_list
-- The replays of a batch that diverged, the newest first; rows that are not stored count as new keys. As JSON, because before
-- revision 0035 there are no such columns. Uses uq_divergence_batch_no, pk_divergence_row.
SELECT v.id, encode(v.digest, 'hex') AS digest, v.run_id, v.row_count, v.quarantined_count, v.differing_count, v.found_at,
       k.kept_count, v.differing_count - k.others AS new_count,
       (to_jsonb(v) ->> 'accepted_at')::timestamptz AS accepted_at, to_jsonb(v) ->> 'accepted_by' AS accepted_by
FROM holdfast.divergence v
CROSS JOIN LATERAL (
    SELECT count(*) AS kept_count, count(*) FILTER (WHERE r.side <> 'only_in_replay') AS others
    FROM holdfast.divergence_row r WHERE r.divergence_id = v.id
) k
WHERE v.batch_no = %(batch_no)s
ORDER BY v.id DESC


-- name: divergence_rows
-- A diverged replay row by row, beside the stored entries of the batch.
-- Uses pk_divergence_row; ix_entry_batch_no of the one partition that holds the batch's moment, pk_subject.
SELECT r.key, r.side::text AS side,
       coalesce(r.subject, s.name) AS subject, s.name AS subject_then,
       coalesce(r.type, e.type) AS type, e.type AS type_then, e.sequence,
       coalesce(r.occurred_at, e.occurred_at) AS occurred_at,
       convert_from(e.body, 'UTF8') AS body_then, r.body AS body_now
FROM (
    SELECT * FROM holdfast.divergence_row
    WHERE divergence_id = %(id)s
    ORDER BY side, key
    LIMIT %(limit)s
) r
LEFT JOIN holdfast.entry e
  ON e.key = r.key AND e.batch_no = %(batch_no)s AND e.created_at = %(written_at)s
LEFT JOIN holdfast.subject s ON s.id = e.subject_id
ORDER BY r.side, r.key


-- name: divergences
-- The newest 20 diverged replays of a stream's batches.
-- Reads all of divergence, a small table; uses uq_batch_batch_no.
SELECT v.id, b.query_id, b.batch_id, v.differing_count, v.row_count AS rows_now, b.row_count AS rows_then, v.found_at
FROM holdfast.divergence v
JOIN holdfast.batch b USING (batch_no)
WHERE b.stream = %(stream)s
ORDER BY v.id DESC
LIMIT 20


-- name: list
-- Every stream with its newest batch.
-- Uses pk_batch.
SELECT s.name, s.query_id, s.epoch, s.run_id, s.checkpoint, s.adopted_at, s.started_at,
       b.batch_id AS last_batch_id, b.written_at AS last_written_at
FROM holdfast.stream s
LEFT JOIN LATERAL (
    SELECT batch_id, written_at FROM holdfast.batch
    WHERE stream = s.name AND query_id = s.query_id
    ORDER BY batch_id DESC LIMIT 1
) b ON true
ORDER BY s.name


-- name: quarantined
-- The open quarantined rows of a stream, by reason and rule. Before revision 0033 `rule` is that of `older`.
-- Uses pk_batch for the batches that have any, then ix_quarantine_batch_no.
SELECT q.reason::text AS reason, q.by_rule AS rule, count(*) AS open, min(q.quarantined_at) AS oldest_quarantined_at
FROM (VALUES (NULL::text)) older (rule)
CROSS JOIN LATERAL (SELECT stored.*, rule AS by_rule FROM holdfast.quarantine stored) q
JOIN holdfast.batch b USING (batch_no)
WHERE b.stream = %(stream)s AND b.quarantined_count > 0 AND q.resolution IS NULL
GROUP BY q.reason, q.by_rule
ORDER BY count(*) DESC, q.reason, q.by_rule


-- name: query_streams
-- The streams in which batches of a query id were written.
-- Uses pk_batch once for each stream.
SELECT s.name FROM holdfast.stream s
WHERE EXISTS (SELECT FROM holdfast.batch b WHERE b.stream = s.name AND b.query_id = %(query_id)s)
ORDER BY s.name


-- name: rename
-- Renames streams: the first one, and those that hold what people wrote by hand for it. In `holdfast.rename_stream`, which wants
-- the audit row first. Uses pk_stream, pk_batch; reads all of transition, exposure_window and late_event.
SELECT holdfast.rename_stream(%(old)s::text[], %(new)s::text[], %(queries)s::uuid[])


-- name: rename_facts
-- What names a stream, whether its role would be lost with its name, and the streams that have or had one of the new names; each
-- can have its own back. As JSON, because before revision 0036 there is no such column. Uses pk_batch; reads all of stream, a small table.
SELECT (SELECT count(*) FROM holdfast.batch WHERE stream = %(stream)s) AS batches,
       ARRAY(SELECT name FROM holdfast.endpoint p
             WHERE to_jsonb(p) -> 'streams' ? %(stream)s ORDER BY name) AS endpoints,
       ARRAY(SELECT DISTINCT s.name FROM holdfast.stream s
             JOIN unnest(%(old)s::text[], %(new)s::text[]) n (old, new)
               ON s.name = n.new OR (s.name <> n.old AND to_jsonb(s) -> 'former_names' ? n.new)
             ORDER BY s.name) AS taken,
       EXISTS (SELECT FROM pg_roles WHERE rolname::text = %(prefix)s || %(stream)s)
           AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname::text = %(prefix)s || %(name)s) AS loses_role


-- name: rename_by_hand
-- The streams that hold what people wrote by hand for a stream.
-- Reads all of stream, a small table.
SELECT name FROM holdfast.stream WHERE acts_for = %(stream)s ORDER BY name


-- name: rename_lock
-- Excludes what chooses the streams of an endpoint until COMMIT, and waits for what does: the rename sees its choice, or the choice
-- sees the new name. Needs no index.
SELECT pg_advisory_xact_lock(hashtext('holdfast.stream_names'))


-- name: rename_sessions
-- The sessions of sinks that write some streams; a name of an application is cut off after 63 bytes.
-- Needs no index.
SELECT pid, usename AS user, backend_start AS since, client_addr::text AS address
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = ANY (%(applications)s)
ORDER BY backend_start


-- name: rename_take
-- Locks a stream until COMMIT. So that a stream written by hand for it is added before, and renamed too, or not at all.
-- Uses pk_stream.
SELECT FROM holdfast.stream WHERE name = %(stream)s FOR UPDATE


-- name: rename_time
-- Each batch, transition state and window of the stream is rewritten: 300,000 of each take 15 s. Needs no index.
SELECT set_config('statement_timeout', '10min', true)


-- name: show
-- A stream with the sums of its ledger over all its checkpoints; no row for an unknown name. Its former names as JSON, because
-- before revision 0036 there are none.
-- Uses pk_stream, and pk_batch for the stream's batches.
SELECT s.name, coalesce(to_jsonb(s) -> 'former_names', '[]') AS former_names,
       s.query_id, s.epoch, s.run_id, s.checkpoint, s.created_at, s.adopted_at, s.started_at,
       count(b.batch_no) AS batches,
       coalesce(sum(b.row_count), 0)::bigint AS rows,
       coalesce(sum(b.entry_count), 0)::bigint AS entries,
       coalesce(sum(b.duplicate_count), 0)::bigint AS duplicates,
       coalesce(sum(b.differing_count), 0)::bigint AS differing,
       coalesce(sum(b.suppressed_count), 0)::bigint AS suppressed,
       coalesce(sum(b.quarantined_count), 0)::bigint AS quarantined,
       count(b.batch_no) FILTER (WHERE b.routed_at IS NULL) AS unrouted_batches,
       coalesce(sum(b.entry_count) FILTER (WHERE b.routed_at IS NULL), 0)::bigint AS unrouted_entries
FROM holdfast.stream s
LEFT JOIN holdfast.batch b ON b.stream = s.name
WHERE s.name = %(stream)s
GROUP BY s.name


-- name: take
-- A stream, locked until COMMIT: its adopted query id, its checkpoint's last known path, and the stream that it acts for.
-- Uses pk_stream.
SELECT name, query_id, query_id AS previous_query_id, epoch, checkpoint, adopted_at,
    acts_for
FROM holdfast.stream
WHERE name = %(stream)s
FOR NO KEY UPDATE


-- name: undelivered
-- Routed entries of a stream that each endpoint has not got yet, dead letters among them. Scans at most N lanes of a kind of each
-- endpoint, the first due first, and M entries of each lane; `complete` is false where a limit was reached.
-- Uses ix_lane_due, ix_lane_leased, uq_dead_letter_open, pk_lane, pk_entry, uq_batch_batch_no.
WITH lanes AS MATERIALIZED (
    SELECT p.id AS endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.cancelled, l.head_created_at, l.kind
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        (SELECT l.subject_id, l.delivered_sequence, $routed(l) AS last_sequence, to_jsonb(l) -> 'cancelled' AS cancelled, l.head_created_at, 'due' AS kind
           FROM holdfast.lane l
          WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
          ORDER BY l.priority, l.due_at
          LIMIT %(lanes)s)
        UNION ALL
        (SELECT l.subject_id, l.delivered_sequence, $routed(l) AS last_sequence, to_jsonb(l) -> 'cancelled' AS cancelled, l.head_created_at, 'leased'
           FROM holdfast.lane l
          WHERE l.endpoint_id = p.id AND l.token IS NOT NULL
          ORDER BY l.lease_until
          LIMIT %(lanes)s)
        UNION ALL
        (SELECT l.subject_id, l.delivered_sequence, $routed(l) AS last_sequence, to_jsonb(l) -> 'cancelled' AS cancelled, l.head_created_at, 'dead'
           FROM (
               SELECT DISTINCT d.subject_id
               FROM (SELECT d.subject_id FROM holdfast.dead_letter d
                      WHERE d.endpoint_id = p.id AND d.resolution IS NULL
                      ORDER BY d.endpoint_id, d.subject_id
                      LIMIT %(lanes)s) d
           ) d
           JOIN holdfast.lane l
             ON l.endpoint_id = p.id AND l.subject_id = d.subject_id AND l.token IS NULL AND l.due_at IS NULL
            AND l.delivered_sequence < l.last_sequence)
    ) l
),
cut AS (
    SELECT endpoint_id, kind FROM lanes GROUP BY endpoint_id, kind HAVING count(*) >= %(lanes)s
)
SELECT p.name AS endpoint, p.state::text AS state, count(*) AS undelivered, min(e.created_at) AS oldest_written_at,
       count(*) FILTER (WHERE d.id IS NOT NULL) AS dead_letters,
       max(e.place) < %(entries)s AND NOT EXISTS (SELECT FROM cut WHERE cut.endpoint_id = p.id) AS complete
FROM lanes l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
CROSS JOIN LATERAL (
    SELECT first.*, row_number() OVER () AS place
    FROM (
        SELECT e.sequence, e.created_at, e.batch_no
        FROM holdfast.entry e
        WHERE e.subject_id = l.subject_id
          AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
          AND NOT coalesce(l.cancelled @> to_jsonb(e.sequence), false)
          -- Prunes partitions, as the claim does.
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (p.types = '{}' OR e.type = ANY (p.types)) AND $takes_stream(p.id, e.batch_no)
        ORDER BY e.sequence
        LIMIT %(entries)s
    ) first
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no AND b.stream = %(stream)s
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = l.endpoint_id AND d.subject_id = l.subject_id AND d.sequence = e.sequence
 AND d.resolution IS NULL
GROUP BY p.id
ORDER BY p.name
