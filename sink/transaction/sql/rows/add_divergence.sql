-- Records a diverged replay, once for each batch and digest however often the driver restarts: then no row is returned.
-- Index: uq_divergence_batch_no.
INSERT INTO holdfast.divergence (
    batch_no, digest, run_id, row_count, quarantined_count, differing_count
)
VALUES (
    %(batch_no)s, %(digest)s, %(run_id)s, %(rows)s, %(quarantined)s, %(differing)s
)
ON CONFLICT (batch_no, digest) DO NOTHING
RETURNING id
