-- A stream with the sums of its ledger over all its checkpoints; no row for an unknown name.
-- Uses pk_stream, and pk_batch for the stream's batches.
SELECT s.name, s.query_id, s.epoch, s.run_id, s.checkpoint, s.created_at, s.adopted_at, s.started_at,
       count(b.batch_no) AS batches,
       coalesce(sum(b.row_count), 0)::bigint AS rows,
       coalesce(sum(b.entry_count), 0)::bigint AS entries,
       coalesce(sum(b.duplicate_count), 0)::bigint AS duplicates,
       coalesce(sum(b.differing_count), 0)::bigint AS differing,
       coalesce(sum(b.suppressed_count), 0)::bigint AS suppressed,
       coalesce(sum(b.quarantined_count), 0)::bigint AS quarantined,
       count(b.batch_no) FILTER (WHERE b.routed_at IS NULL) AS unrouted_batches,
       coalesce(sum(b.entry_count) FILTER (WHERE b.routed_at IS NULL), 0)::bigint AS unrouted_entries
FROM holdfast.stream s
LEFT JOIN holdfast.batch b ON b.stream = s.name
WHERE s.name = %(stream)s
GROUP BY s.name
