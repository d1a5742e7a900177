-- The replays of a batch that diverged, the newest first.
-- Uses uq_divergence_batch_no.
SELECT v.id, encode(v.digest, 'hex') AS digest, v.run_id, v.row_count, v.quarantined_count, v.differing_count, v.found_at,
       (SELECT count(*) FROM holdfast.divergence_row r WHERE r.divergence_id = v.id) AS kept_count
FROM holdfast.divergence v
WHERE v.batch_no = %(batch_no)s
ORDER BY v.id DESC
