-- Routed entries of a stream that each endpoint has not got yet, dead letters among them. Scans at most N lanes of a kind of each
-- endpoint, the first due first, and M entries of each lane; `complete` is false where a limit was reached.
-- Uses ix_lane_due, ix_lane_leased, uq_dead_letter_open, pk_lane, pk_entry, uq_batch_batch_no.
WITH lanes AS MATERIALIZED (
    SELECT p.id AS endpoint_id, l.subject_id, l.delivered_sequence, l.last_sequence, l.head_created_at, l.kind
    FROM holdfast.endpoint p
    CROSS JOIN LATERAL (
        (SELECT l.subject_id, l.delivered_sequence, l.last_sequence, l.head_created_at, 'due' AS kind
           FROM holdfast.lane l
          WHERE l.endpoint_id = p.id AND l.due_at IS NOT NULL AND l.token IS NULL
          ORDER BY l.priority, l.due_at
          LIMIT %(lanes)s)
        UNION ALL
        (SELECT l.subject_id, l.delivered_sequence, l.last_sequence, l.head_created_at, 'leased'
           FROM holdfast.lane l
          WHERE l.endpoint_id = p.id AND l.token IS NOT NULL
          ORDER BY l.lease_until
          LIMIT %(lanes)s)
        UNION ALL
        (SELECT l.subject_id, l.delivered_sequence, l.last_sequence, l.head_created_at, 'dead'
           FROM (
               SELECT DISTINCT d.subject_id
               FROM (SELECT d.subject_id FROM holdfast.dead_letter d
                      WHERE d.endpoint_id = p.id AND d.resolution IS NULL
                      ORDER BY d.endpoint_id, d.subject_id
                      LIMIT %(lanes)s) d
           ) d
           JOIN holdfast.lane l
             ON l.endpoint_id = p.id AND l.subject_id = d.subject_id AND l.token IS NULL AND l.due_at IS NULL
            AND l.delivered_sequence < l.last_sequence)
    ) l
),
cut AS (
    SELECT endpoint_id, kind FROM lanes GROUP BY endpoint_id, kind HAVING count(*) >= %(lanes)s
)
SELECT p.name AS endpoint, p.state::text AS state, count(*) AS undelivered, min(e.created_at) AS oldest_written_at,
       count(*) FILTER (WHERE d.id IS NOT NULL) AS dead_letters,
       max(e.place) < %(entries)s AND NOT EXISTS (SELECT FROM cut WHERE cut.endpoint_id = p.id) AS complete
FROM lanes l
JOIN holdfast.endpoint p ON p.id = l.endpoint_id
CROSS JOIN LATERAL (
    SELECT first.*, row_number() OVER () AS place
    FROM (
        SELECT e.sequence, e.created_at, e.batch_no
        FROM holdfast.entry e
        WHERE e.subject_id = l.subject_id
          AND e.sequence > l.delivered_sequence AND e.sequence <= l.last_sequence
          -- Prunes partitions, as the claim does.
          AND e.created_at >= l.head_created_at - interval '1 hour'
          AND (p.types = '{}' OR e.type = ANY (p.types))
        ORDER BY e.sequence
        LIMIT %(entries)s
    ) first
) e
JOIN holdfast.batch b ON b.batch_no = e.batch_no AND b.stream = %(stream)s
LEFT JOIN holdfast.dead_letter d
  ON d.endpoint_id = l.endpoint_id AND d.subject_id = l.subject_id AND d.sequence = e.sequence
 AND d.resolution IS NULL
GROUP BY p.id
ORDER BY p.name
