-- Which staged entries are written, with their subjects and sequences; gone with the transaction.
-- No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_numbered (
    ordinal    integer NOT NULL,
    subject_id bigint  NOT NULL,
    sequence   bigint  NOT NULL
) ON COMMIT DROP
