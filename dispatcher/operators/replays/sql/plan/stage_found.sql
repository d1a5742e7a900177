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
