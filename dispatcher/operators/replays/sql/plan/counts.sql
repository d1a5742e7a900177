-- The counts of a plan by endpoint and kind.
-- Reads all of a temporary table.
SELECT p.name AS endpoint, f.kind::text AS kind, p.rate_per_second, count(*) AS entries,
       count(*) FILTER (WHERE f.kind = 'resend' AND f.receipt) AS no_op_there,
       count(*) FILTER (WHERE f.kind <> 'nothing' AND f.forgotten) AS outside_window,
       count(f.taken_by) AS taken,
       min(f.created_at) FILTER (WHERE f.kind <> 'nothing') AS oldest,
       max(f.created_at) FILTER (WHERE f.kind <> 'nothing') AS newest
FROM pg_temp.holdfast_found f
JOIN holdfast.endpoint p ON p.id = f.endpoint_id
GROUP BY p.name, f.kind, p.rate_per_second
ORDER BY p.name, f.kind
