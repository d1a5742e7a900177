-- Time from a decision's commit to its delivery, of a sample of deliveries in each minute since a moment.
-- Uses ix_attempt_finished_at, pk_entry; scans the newest N attempts of each minute.
SELECT count(*) AS deliveries,
       percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
           ORDER BY greatest(extract(epoch FROM a.finished_at - e.created_at), 0)::double precision) AS seconds
FROM generate_series(%(since)s::timestamptz, %(at)s::timestamptz, interval '1 minute') minute
CROSS JOIN LATERAL (
    SELECT newest.subject_id, newest.sequence, newest.finished_at
    FROM (
        SELECT a.subject_id, a.sequence, a.finished_at, a.outcome
        FROM holdfast.attempt a
        WHERE a.finished_at >= minute AND a.finished_at < minute + interval '1 minute'
        ORDER BY a.finished_at DESC
        LIMIT %(scan)s
    ) newest
    WHERE newest.outcome = 'delivered'
    LIMIT %(of_a_minute)s
) a
CROSS JOIN LATERAL (
    SELECT e.created_at
    FROM holdfast.entry e
    WHERE e.subject_id = a.subject_id AND e.sequence = a.sequence
    LIMIT 1
) e
