-- The table for a batch's entries: created in its transaction and dropped with it, so that the next
-- client of a pooled session does not find it. No index: each statement reads all of it.
CREATE TEMPORARY TABLE holdfast_staged (
    ordinal     integer     NOT NULL,
    subject     text        NOT NULL,
    type        text        NOT NULL,
    key         uuid        NOT NULL,
    content     uuid        NOT NULL,
    occurred_at timestamptz NOT NULL,
    priority    smallint    NOT NULL,
    traceparent text,
    head        text        NOT NULL,
    tail        text        NOT NULL
) ON COMMIT DROP
