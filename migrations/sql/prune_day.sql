-- Drops a day, unless something in it is undelivered, in a separate transaction. Reads the whole day
-- by pk_lane and uq_batch_batch_no; the other rows by ix_batch_unrouted and uq_dead_letter_open.
SELECT outcome, row_count, bytes, waiting, unrouted, dead_letters, abandoned, endpoints
FROM holdfast.prune_day(
    %(parent)s, %(day)s, %(days)s, %(dry_run)s, %(actor)s, %(reason)s
)
