-- The staged entries that are new and change something, with their sequence; a COMMIT empties it.
-- No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_numbered (
    ordinal     integer     NOT NULL,
    subject_id  bigint      NOT NULL,
    sequence    bigint      NOT NULL,
    type        text        NOT NULL,
    occurred_at timestamptz NOT NULL
) ON COMMIT DELETE ROWS
