-- The batch's number, its timestamp, and the id of its transaction. Read after the subjects are locked, and never less than
-- the newest created_at of any of them, so that created_at never decreases within a subject, even if the clock does. No index.
SELECT
    nextval(pg_get_serial_sequence('holdfast.batch', 'batch_no')) AS batch_no,
    greatest(clock_timestamp(), %(last_created_at)s::timestamptz) AS written_at,
    pg_current_xact_id()::text AS transaction_id
