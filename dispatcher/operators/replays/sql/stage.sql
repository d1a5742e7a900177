-- Where the entries of a filter are put before they are judged; gone with the transaction.
-- No index: what follows reads all of it.
CREATE TEMPORARY TABLE holdfast_candidate (
    subject_id bigint,
    sequence   bigint,
    created_at timestamptz,
    key        uuid,
    type       text,
    batch_no   bigint
) ON COMMIT DROP
