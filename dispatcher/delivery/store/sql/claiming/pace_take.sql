-- Locks the paces of endpoints for this transaction, in the order of their ids: of all given endpoints, or only of those with
-- a limit (a rate, a breaker that is not closed, a hold), so that claims of the others do not wait. Uses pk_endpoint_pace,
-- pk_endpoint.
SELECT e.endpoint_id, e.breaker::text AS breaker, e.breaker_since, e.breaker_until, e.breaker_reason, e.failures,
       e.openings, e.probe, e.paid_until, e.held_until, e.held_by, e.paused, e.stalled_us, e.stalled_since,
       e.stalled_until, p.rate_per_second, p.breaker_threshold, p.slow_start_seconds,
       p.total_timeout_ms, p.inquiry_path,
       now() AS at
FROM holdfast.endpoint_pace e
JOIN holdfast.endpoint p ON p.id = e.endpoint_id
WHERE e.endpoint_id = ANY (%(endpoint_ids)s::integer[])
  AND (%(free_too)s OR p.rate_per_second IS NOT NULL OR e.breaker <> 'closed' OR e.held_until > now())
ORDER BY e.endpoint_id
FOR NO KEY UPDATE OF e
