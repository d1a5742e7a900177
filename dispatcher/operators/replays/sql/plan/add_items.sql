-- Adds the items of a plan, in the transaction that records it.
-- Unique by pk_replay_item; reads all of a temporary table.
INSERT INTO holdfast.replay_item (
    replay_id, endpoint_id, subject_id, sequence, created_at, key, kind, place
)
SELECT %(id)s, endpoint_id, subject_id, sequence, created_at, key, kind, place
FROM pg_temp.holdfast_found
WHERE kind <> 'nothing'
