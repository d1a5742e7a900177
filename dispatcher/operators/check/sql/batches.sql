-- I2, I12: the counts of a batch add up, and equal the stored entries, keys, suppressed and quarantined rows.
-- Uses uq_batch_batch_no, ix_entry_batch_no of the partitions of its moments, ix_entry_key_batch_no, ix_quarantine_batch_no, pk_suppressed.
WITH found AS (
    SELECT b.*, coalesce(e.rows, 0) AS entries, coalesce(k.rows, 0) AS keys, coalesce(q.rows, 0) AS quarantined,
           coalesce(x.rows, 0) AS suppressed
    FROM holdfast.batch b
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.entry
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
          AND created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY batch_no
    ) e USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.entry_key
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
        GROUP BY batch_no
    ) k USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.quarantine
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
        GROUP BY batch_no
    ) q USING (batch_no)
    LEFT JOIN (
        SELECT batch_no, count(*) AS rows
        FROM holdfast.suppressed
        WHERE batch_no > %(after_batch_no)s AND batch_no <= %(last_batch_no)s
          AND suppressed_at BETWEEN %(first_written_at)s AND %(last_written_at)s
        GROUP BY batch_no
    ) x USING (batch_no)
    WHERE b.batch_no > %(after_batch_no)s AND b.batch_no <= %(last_batch_no)s
      AND b.written_at >= %(since)s AND b.written_at < %(until)s
      AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
),
violations AS (
    SELECT v.rule, f.stream, f.batch_id, f.batch_no, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('batch_rows',
         f.row_count <> f.entry_count + f.duplicate_count + f.suppressed_count + f.quarantined_count,
         format('%%s input rows; %%s entries, %%s duplicates, %%s suppressed, %%s quarantined', f.row_count,
                f.entry_count, f.duplicate_count, f.suppressed_count, f.quarantined_count)),
        ('batch_entries', f.entry_count <> f.entries,
         format('the ledger has %%s entries, %%s are stored', f.entry_count, f.entries)),
        ('batch_keys', f.entry_count + f.suppressed_count <> f.keys,
         format('the ledger has %%s keys, %%s are stored', f.entry_count + f.suppressed_count, f.keys)),
        ('batch_quarantined', f.quarantined_count <> f.quarantined,
         format('the ledger has %%s quarantined rows, %%s are stored', f.quarantined_count, f.quarantined)),
        ('batch_suppressed',
         f.keeps_suppressed AND f.written_at >= %(suppressed_since)s AND f.suppressed_count <> f.suppressed,
         format('the ledger has %%s suppressed rows, %%s are stored', f.suppressed_count, f.suppressed))
    ) AS v (rule, violated, detail)
    WHERE v.violated
)
SELECT rule, count, stream, batch_id, detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY batch_no) AS place
    FROM violations v
) numbered
WHERE place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, 'batches' FROM found
