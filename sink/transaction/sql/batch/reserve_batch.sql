-- The batch's number, its one moment, and which transaction writes it. Read after the subjects are locked and never before
-- their last one, so that created_at does not go back within a subject, even if the clock does. No index.
SELECT
    nextval(pg_get_serial_sequence('holdfast.batch', 'batch_no')) AS batch_no,
    greatest(clock_timestamp(), %(last_created_at)s::timestamptz) AS written_at,
    pg_current_xact_id()::text AS transaction_id
