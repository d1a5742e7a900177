-- How the entries found now differ from a plan: new ones, missing ones, and those taken by another replay.
-- Uses pk_replay_item; reads all of a temporary table.
SELECT count(*) FILTER (WHERE i.replay_id IS NULL) AS added,
       count(*) FILTER (WHERE f.endpoint_id IS NULL) AS missing,
       (SELECT count(*) FROM pg_temp.holdfast_found WHERE taken_by IS NOT NULL) AS taken
FROM (SELECT * FROM pg_temp.holdfast_found WHERE kind NOT IN ('nothing', 'hasten')) f
FULL JOIN (
    SELECT * FROM holdfast.replay_item WHERE replay_id = %(id)s AND kind <> 'hasten'
) i USING (endpoint_id, subject_id, sequence, kind)
