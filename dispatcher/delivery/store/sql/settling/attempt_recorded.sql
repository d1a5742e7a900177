-- Which of these leases have a recorded attempt that was settled, not rescued: the COMMIT in doubt succeeded.
-- Uses pk_attempt; a settlement in doubt is never older than its lease, so one day prunes enough.
SELECT DISTINCT r.endpoint_id, r.subject_id, r.token
FROM unnest(%(endpoint_ids)s::integer[], %(subject_ids)s::bigint[], %(tokens)s::uuid[],
            %(sequences)s::bigint[]) AS r (endpoint_id, subject_id, token, sequence)
JOIN holdfast.attempt a
  ON a.endpoint_id = r.endpoint_id AND a.subject_id = r.subject_id AND a.sequence = r.sequence
 AND a.token = r.token AND a.duration_ms IS NOT NULL
 AND a.finished_at > now() - interval '1 day'
