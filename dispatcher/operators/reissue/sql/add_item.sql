-- Links an entry to the key of its reissue, once for each endpoint that will get it.
-- Unique by pk_replay_item; uses uq_endpoint_name.
INSERT INTO holdfast.replay_item (
    replay_id, endpoint_id, subject_id, sequence, created_at, key, new_key, kind, place
)
SELECT %(id)s, p.id, %(subject_id)s, %(sequence)s, %(written_at)s, %(key)s, %(new_key)s, 'reissue', %(place)s
FROM holdfast.endpoint p
WHERE p.name = ANY (%(endpoints)s::text[])
