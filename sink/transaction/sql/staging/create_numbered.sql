-- The written ones of the staged entries, with subjects and sequences; dropped at COMMIT.
-- No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_numbered (
    ordinal    integer NOT NULL,
    subject_id bigint  NOT NULL,
    sequence   bigint  NOT NULL
) ON COMMIT DROP
