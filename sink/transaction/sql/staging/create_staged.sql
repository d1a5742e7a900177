-- Where a batch's entries arrive: made in its transaction and gone with it, so that the next owner
-- of a pooled session meets nothing. No index: each statement reads all of it.
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
