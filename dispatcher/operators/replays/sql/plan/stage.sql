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
