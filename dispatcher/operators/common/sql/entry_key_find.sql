-- The batch that recorded a key; no row if the key was never used.
-- Uses pk_entry_key, uq_batch_batch_no.
SELECT k.batch_no, b.stream, b.query_id, b.batch_id, b.written_at, b.routed_at
FROM holdfast.entry_key k
JOIN holdfast.batch b USING (batch_no)
WHERE k.key = %(key)s
