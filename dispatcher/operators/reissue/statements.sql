-- name: add
-- Records a plan of reissues, before any entry is written.
-- Unique by pk_replay.
INSERT INTO holdfast.replay (id, verb, filter, item_count, reason, actor, counts, person)
VALUES (%(id)s, 'reissue', %(filter)s, %(item_count)s, %(reason)s, %(actor)s, %(counts)s, %(person)s)


-- name: add_item
-- Links an entry to the key of its reissue, once for each endpoint that will get it.
-- Unique by pk_replay_item; uses uq_endpoint_name.
INSERT INTO holdfast.replay_item (
    replay_id, endpoint_id, subject_id, sequence, created_at, key, new_key, kind, place
)
SELECT %(id)s, p.id, %(subject_id)s, %(sequence)s, %(written_at)s, %(key)s, %(new_key)s, 'reissue', %(place)s
FROM holdfast.endpoint p
WHERE p.name = ANY (%(endpoints)s::text[])


-- name: bury
-- Resolves the open ones of some dead letters, because their decision was reissued under another key.
-- Uses pk_dead_letter.
UPDATE holdfast.dead_letter
SET resolution = 'reissued', resolved_at = clock_timestamp(), resolved_by = %(actor)s
WHERE id = ANY (%(ids)s::bigint[]) AND resolution IS NULL
RETURNING id


-- name: dead
-- The open dead letters of an entry, at any endpoint.
-- Uses uq_dead_letter_open, once for each endpoint.
SELECT d.id
FROM holdfast.endpoint p
JOIN holdfast.dead_letter d ON d.endpoint_id = p.id
WHERE d.subject_id = %(subject_id)s AND d.sequence = %(sequence)s AND d.resolution IS NULL
ORDER BY d.id


-- name: endpoints
-- The endpoints that take entries of a type that were written for the stream of a batch.
-- Reads all of endpoint, a small table; uses uq_batch_batch_no, pk_stream.
SELECT p.name FROM holdfast.endpoint p
WHERE (p.types = '{}' OR %(type)s = ANY (p.types)) AND $takes_stream(p.id, %(batch_no)s)
ORDER BY p.name


-- name: finish
-- Ends a reissue when everything is written.
-- Uses pk_replay, pk_replay_item.
UPDATE holdfast.replay
SET state = 'applied', applied_at = coalesce(applied_at, now()), finished_at = now()
WHERE id = %(id)s AND state = 'planned'
  AND NOT EXISTS (SELECT FROM holdfast.replay_item i WHERE i.replay_id = replay.id AND i.settled_at IS NULL)


-- name: is_left
-- Whether an entry of a reissue is still to be written.
-- Uses pk_replay_item.
SELECT EXISTS (
    SELECT FROM holdfast.replay_item WHERE replay_id = %(id)s AND place = %(place)s AND settled_at IS NULL
) AS is_left


-- name: items
-- The entries that a reissue has not written yet, in order.
-- Uses pk_replay, pk_replay_item.
SELECT DISTINCT ON (i.place) i.place, i.key, i.new_key, i.created_at AS written_at, i.subject_id, i.sequence, y.reason
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.settled_at IS NULL
WHERE y.id = %(id)s
ORDER BY i.place


-- name: known
-- Earlier and planned reissues of an entry, the oldest first; without those cancelled before they wrote it.
-- Reads all of replay, a small table of people's plans; uses pk_replay_item.
SELECT y.id, y.state::text AS state, y.actor, y.created_at, y.finished_at, i.new_key
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.key = %(key)s
WHERE y.verb = 'reissue' AND (y.state <> 'cancelled' OR i.settled_at IS NOT NULL)
GROUP BY y.id, i.new_key
ORDER BY y.created_at, y.id


-- name: receipts
-- When an entry was delivered to each endpoint, and the newest receipt.
-- Uses pk_attempt of the partitions from the entry's day on, pk_endpoint.
SELECT p.name AS endpoint, p.id AS endpoint_id, max(a.finished_at) AS delivered_at,
       (array_agg(a.receipt ORDER BY a.finished_at DESC) FILTER (WHERE a.receipt IS NOT NULL))[1] AS receipt
FROM holdfast.endpoint p
JOIN holdfast.attempt a
  ON a.endpoint_id = p.id AND a.subject_id = %(subject_id)s AND a.sequence = %(sequence)s
 AND a.finished_at >= %(written_at)s::timestamptz - interval '1 hour'
WHERE a.outcome = 'delivered'
GROUP BY p.id
ORDER BY p.name


-- name: resent
-- The replays that will send an entry under its own key, or have it in flight.
-- Uses ix_replay_item_open, once for each endpoint, and pk_replay.
SELECT DISTINCT y.id, y.actor
FROM holdfast.endpoint p
JOIN holdfast.replay_item i
  ON i.endpoint_id = p.id AND i.subject_id = %(subject_id)s AND i.sequence = %(sequence)s AND i.settled_at IS NULL
JOIN holdfast.replay y ON y.id = i.replay_id AND y.verb = 'redeliver'
WHERE y.state = 'applying' OR i.token IS NOT NULL
ORDER BY y.id


-- name: settle
-- Marks an entry as reissued, unless it is marked already.
-- Uses pk_replay_item.
UPDATE holdfast.replay_item
SET settled_at = now(), detail = %(detail)s
WHERE replay_id = %(id)s AND place = %(place)s AND settled_at IS NULL


-- name: subject
-- The newest decision of a subject over all streams: sequence, type, time.
-- Uses pk_subject, pk_transition.
SELECT s.last_sequence, newest.last_type, newest.last_occurred_at
FROM holdfast.subject s
LEFT JOIN LATERAL (
    SELECT t.last_type, t.last_occurred_at
    FROM holdfast.transition t
    WHERE t.subject_id = s.id
    ORDER BY t.updated_at DESC
    LIMIT 1
) newest ON true
WHERE s.id = %(subject_id)s


-- name: written
-- The entries that a reissue has written and not recorded, because the process crashed in between.
-- Uses pk_replay, pk_replay_item, pk_entry_key.
SELECT DISTINCT ON (i.place) i.place, i.key, i.new_key, i.created_at AS written_at, i.subject_id, i.sequence, y.reason
FROM holdfast.replay y
JOIN holdfast.replay_item i ON i.replay_id = y.id AND i.settled_at IS NULL
JOIN holdfast.entry_key k ON k.key = i.new_key
WHERE y.id = %(id)s
ORDER BY i.place
