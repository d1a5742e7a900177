-- What needs a person and what is on its way, as of one snapshot.
-- Uses ix_batch_unrouted, ix_lane_due, ix_lane_leased, uq_dead_letter_open, pk_batch; open rows are counted to 100,000.
SELECT
    (SELECT count(*) FROM holdfast.batch WHERE routed_at IS NULL) AS unrouted_batches,
    (SELECT count(*) FROM holdfast.lane l JOIN holdfast.endpoint p ON p.id = l.endpoint_id
      WHERE l.due_at <= clock_timestamp() AND l.token IS NULL AND p.state = 'active') AS due_lanes,
    (SELECT count(*) FROM holdfast.lane l JOIN holdfast.endpoint p ON p.id = l.endpoint_id
      WHERE l.due_at > clock_timestamp() AND l.token IS NULL AND p.state = 'active') AS retrying_lanes,
    (SELECT count(*) FROM holdfast.lane WHERE token IS NOT NULL) AS leased_lanes,
    (SELECT count(*) FROM holdfast.dead_letter WHERE resolution IS NULL) AS dead_letters,
    (SELECT coalesce(sum(quarantined_count), 0)::bigint FROM holdfast.batch) AS quarantined_rows,
    (SELECT count(*) FROM (SELECT FROM holdfast.quarantine WHERE resolution IS NULL LIMIT 100000) AS o)
        AS open_quarantined_rows,
    (SELECT count(*) FROM holdfast.divergence v JOIN holdfast.batch b USING (batch_no)
       JOIN holdfast.stream s ON s.name = b.stream AND s.query_id = b.query_id
      WHERE NOT EXISTS (SELECT FROM holdfast.batch later WHERE later.stream = b.stream
                           AND later.query_id = b.query_id AND later.batch_id > b.batch_id)
    ) AS diverged_replays,
    (SELECT coalesce(sum(entry_count), 0)::bigint FROM holdfast.batch) AS entries,
    (SELECT extract(epoch FROM clock_timestamp() - min(l.head_created_at))::double precision
       FROM holdfast.lane l JOIN holdfast.endpoint p ON p.id = l.endpoint_id
      WHERE l.due_at IS NOT NULL AND l.delivered_sequence < l.last_sequence AND p.state = 'active'
    ) AS oldest_waiting_seconds
