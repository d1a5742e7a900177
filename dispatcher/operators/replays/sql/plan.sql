-- name: add
-- Records a plan.
-- Unique by pk_replay.
INSERT INTO holdfast.replay (
    id, verb, filter, item_count, reason, actor, rate_per_second, counts, plan_sha256, outside_window, item_limit,
    person
)
VALUES (
    %(id)s, 'redeliver', %(filter)s, %(item_count)s, %(reason)s, %(actor)s, %(rate)s, %(counts)s, %(sha256)s,
    %(outside_window)s, %(limit)s, %(person)s
)


-- name: add_items
-- Adds the items of a plan, in the transaction that records it.
-- Unique by pk_replay_item; reads all of a temporary table.
INSERT INTO holdfast.replay_item (
    replay_id, endpoint_id, subject_id, sequence, created_at, key, kind, place
)
SELECT %(id)s, endpoint_id, subject_id, sequence, created_at, key, kind, place
FROM pg_temp.holdfast_found
WHERE kind <> 'nothing'


-- name: analyze
-- Gives the planner statistics of the filter's candidates, before they are judged.
-- Needs no index.
ANALYZE pg_temp.holdfast_candidate


-- name: changed
-- How the entries found now differ from a plan: new ones, missing ones, and those taken by another replay.
-- Uses pk_replay_item; reads all of a temporary table.
SELECT count(*) FILTER (WHERE i.replay_id IS NULL) AS added,
       count(*) FILTER (WHERE f.endpoint_id IS NULL) AS missing,
       (SELECT count(*) FROM pg_temp.holdfast_found WHERE taken_by IS NOT NULL) AS taken
FROM (SELECT * FROM pg_temp.holdfast_found WHERE kind NOT IN ('nothing', 'hasten')) f
FULL JOIN (
    SELECT * FROM holdfast.replay_item WHERE replay_id = %(id)s AND kind <> 'hasten'
) i USING (endpoint_id, subject_id, sequence, kind)


-- name: counts
-- The counts of a plan by endpoint and kind.
-- Reads all of a temporary table.
SELECT p.name AS endpoint, f.kind::text AS kind, p.rate_per_second, count(*) AS entries,
       count(*) FILTER (WHERE f.kind = 'resend' AND f.receipt) AS no_op_there,
       count(*) FILTER (WHERE f.kind <> 'nothing' AND f.forgotten) AS outside_window,
       count(f.taken_by) AS taken,
       min(f.created_at) FILTER (WHERE f.kind <> 'nothing') AS oldest,
       max(f.created_at) FILTER (WHERE f.kind <> 'nothing') AS newest
FROM pg_temp.holdfast_found f
JOIN holdfast.endpoint p ON p.id = f.endpoint_id
GROUP BY p.name, f.kind, p.rate_per_second
ORDER BY p.name, f.kind


-- name: digest
-- The SHA-256 over what a replay would send, in order. Retries that are only brought forward are not part of it: they come and
-- go by themselves. Reads all of a temporary table.
SELECT sha256(convert_to(coalesce(string_agg(
    concat_ws(',', endpoint_id, subject_id, sequence, kind), E'\n'
    ORDER BY created_at, subject_id, sequence, endpoint_id), ''), 'UTF8')) AS sha256
FROM pg_temp.holdfast_found
WHERE kind NOT IN ('nothing', 'hasten')


-- name: from_dead
-- The entries of open dead letters.
-- Uses uq_dead_letter_open (all of it), pk_entry, uq_batch_batch_no.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM (
    SELECT DISTINCT d.subject_id, d.sequence, d.created_at
    FROM holdfast.dead_letter d
    JOIN holdfast.endpoint p ON p.id = d.endpoint_id
    WHERE d.resolution IS NULL AND (%(endpoint)s::text IS NULL OR p.name = %(endpoint)s::text)
) d
JOIN holdfast.entry e
  ON e.subject_id = d.subject_id AND e.sequence = d.sequence AND e.created_at = d.created_at
WHERE (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR e.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s
       AND EXISTS (SELECT FROM holdfast.batch b
                    WHERE b.batch_no = e.batch_no AND b.stream = %(stream)s::text
                      AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0)
                                         AND coalesce(%(last_batch)s::bigint, 9223372036854775807)))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))


-- name: from_entries
-- The entries of a subject, a stream's batches, a time range, or types; without a time range, of all partitions.
-- Uses pk_entry for a subject, else ix_entry_batch_no or a scan of the partitions in range.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM holdfast.entry e
WHERE (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR e.batch_no BETWEEN %(first_batch_no)s AND %(last_batch_no)s
       AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
       AND EXISTS (SELECT FROM holdfast.batch b
                    WHERE b.batch_no = e.batch_no AND b.stream = %(stream)s::text
                      AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0)
                                         AND coalesce(%(last_batch)s::bigint, 9223372036854775807)))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))


-- name: from_keys
-- The entries of keys; none for a key whose entry is not stored.
-- Uses pk_entry_key, uq_batch_batch_no, ix_entry_batch_no of the partition that holds the batch's moment.
INSERT INTO pg_temp.holdfast_candidate (subject_id, sequence, created_at, key, type, batch_no)
SELECT e.subject_id, e.sequence, e.created_at, e.key, e.type, e.batch_no
FROM holdfast.entry_key k
JOIN holdfast.batch b USING (batch_no)
JOIN holdfast.entry e ON e.batch_no = b.batch_no AND e.created_at = b.written_at AND e.key = k.key
WHERE k.key = ANY (%(keys)s::uuid[])
  AND (%(subject)s::text IS NULL
       OR e.subject_id = (SELECT s.id FROM holdfast.subject s WHERE s.name = %(subject)s::text))
  AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text
       AND b.batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0) AND coalesce(%(last_batch)s::bigint, 9223372036854775807))
  AND e.created_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND e.created_at < coalesce(%(until)s::timestamptz, 'infinity')
  AND (cardinality(%(types)s::text[]) = 0 OR e.type = ANY (%(types)s::text[]))


-- name: limit
-- Limits a replay to its first N items.
-- Reads all of a temporary table.
DELETE FROM pg_temp.holdfast_found WHERE kind <> 'nothing' AND place > %(limit)s


-- name: overlaps
-- Other replays, planned or applying, that have some of the found entries, with their count.
-- Reads all of a temporary table; uses ix_replay_item_open, pk_replay.
SELECT y.id, y.state::text AS state, y.actor, count(*) AS entries
FROM pg_temp.holdfast_found f
JOIN holdfast.replay_item i
  ON i.endpoint_id = f.endpoint_id AND i.subject_id = f.subject_id AND i.sequence = f.sequence
 AND i.settled_at IS NULL
JOIN holdfast.replay y ON y.id = i.replay_id AND y.state IN ('planned', 'applying')
WHERE (f.kind <> 'nothing' OR f.taken_by IS NOT NULL) AND y.id <> %(id)s
GROUP BY y.id
ORDER BY y.created_at, y.id


-- name: find_cancelled
-- The candidates that a person cancelled, with the endpoint, or none for all endpoints.
-- Uses uq_cancellation; reads all of a temporary table.
INSERT INTO pg_temp.holdfast_cancelled (endpoint_id, subject_id, sequence)
SELECT c.endpoint_id, c.subject_id, c.sequence
FROM pg_temp.holdfast_candidate e
JOIN holdfast.cancellation c ON c.subject_id = e.subject_id AND c.sequence = e.sequence


-- name: patience
-- Raises the statement timeout for a plan of many entries, in this transaction only.
-- Needs no index.
SELECT set_config('statement_timeout', '10min', true), set_config('jit', 'off', true)


-- name: range
-- The range of batch numbers and moments of a stream's batches with these ids, which bounds later reads; nulls without any.
-- Other batches lie in it too: each checkpoint of a stream numbers from 0, and reissues have ids of their own.
-- Uses pk_batch of the stream.
SELECT min(batch_no) AS first_batch_no, max(batch_no) AS last_batch_no,
       min(written_at) AS first_written_at, max(written_at) AS last_written_at
FROM holdfast.batch
WHERE stream = %(stream)s
  AND batch_id BETWEEN coalesce(%(first_batch)s::bigint, 0) AND coalesce(%(last_batch)s::bigint, 9223372036854775807)


-- name: reissue_of_keys
-- The newest key of a reissue of each entry.
-- Reads all of replay, a small table of people's plans; uses pk_replay_item, pk_entry_key.
SELECT DISTINCT ON (i.key) i.key, i.new_key
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id
LEFT JOIN holdfast.entry_key k ON i.settled_at IS NULL AND k.key = i.new_key
WHERE y.verb = 'reissue' AND i.key = ANY (%(keys)s::uuid[]) AND (i.settled_at IS NOT NULL OR k.key IS NOT NULL)
ORDER BY i.key, y.created_at DESC


-- name: stage
-- The candidates of a filter, before they are judged; dropped with the transaction.
-- Needs no index: later statements read all of it.
CREATE TEMPORARY TABLE holdfast_candidate (
    subject_id bigint,
    sequence   bigint,
    created_at timestamptz,
    key        uuid,
    type       text,
    batch_no   bigint
) ON COMMIT DROP


-- name: stage_cancelled
-- The candidates that a person cancelled; dropped with the transaction.
-- Needs no index: a row for each decision of a person.
CREATE TEMPORARY TABLE holdfast_cancelled (
    endpoint_id integer,
    subject_id  bigint,
    sequence    bigint
) ON COMMIT DROP


-- name: stage_found
-- The judged entries of a replay, one row for each endpoint, until they are counted and stored; dropped with the transaction.
-- Needs no index: later statements read all of it.
CREATE TEMPORARY TABLE holdfast_found (
    endpoint_id integer,
    subject_id  bigint,
    sequence    bigint,
    created_at  timestamptz,
    key         uuid,
    kind        holdfast.replay_kind,
    receipt     boolean,
    forgotten   boolean,
    taken_by    uuid,
    place       bigint
) ON COMMIT DROP
