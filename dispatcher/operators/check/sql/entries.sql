-- I4, I2: an entry's body is the one recorded with its key, and its batch is in the ledger; I16: none is in the future.
-- Uses ix_entry_batch_no of the partitions of those moments, ix_entry_key_batch_no, uq_batch_batch_no.
WITH found AS MATERIALIZED (
    SELECT e.subject_id, e.sequence, e.key, e.batch_no, e.created_at, b.stream, b.batch_id, k.key IS NOT NULL AS recorded,
           e.created_at > now() + interval '1 minute' AS future,
           -- The hash that the sink stored: of the body without the sequence, which follows the first "sequence".
           substring(sha256(
               overlay(e.body PLACING '' FROM position('"sequence":'::bytea IN e.body) + 11 FOR length(e.sequence::text))
           ) FROM 1 FOR 16) = uuid_send(k.content) AS kept
    FROM holdfast.entry e
    LEFT JOIN holdfast.batch b ON b.batch_no = e.batch_no
    LEFT JOIN holdfast.entry_key k
      ON k.key = e.key AND k.batch_no = e.batch_no
     AND k.batch_no > %(after_batch_no)s AND k.batch_no <= %(last_batch_no)s
    WHERE e.batch_no > %(after_batch_no)s AND e.batch_no <= %(last_batch_no)s
      AND e.created_at BETWEEN %(first_written_at)s AND %(last_written_at)s
      AND (%(stream)s::text IS NULL OR b.stream = %(stream)s::text)
),
violations AS (
    SELECT v.rule, f.*, v.detail
    FROM found f
    CROSS JOIN LATERAL (VALUES
        ('entry_unbatched', f.stream IS NULL, format('it has batch number %%s', f.batch_no)),
        ('key_unrecorded', f.stream IS NOT NULL AND NOT f.recorded, 'its key is not recorded for its batch'),
        ('body_changed', f.recorded AND NOT f.kept, 'its body is not the one recorded with its key'),
        ('time_future', f.future, format('created at %%s', f.created_at))
    ) AS v (rule, violated, detail)
    -- Texts are built only for violations.
    WHERE (f.future OR f.stream IS NULL OR f.kept IS NOT TRUE) AND v.violated
)
SELECT n.rule, n.count, n.stream, n.batch_id, s.name AS subject, n.sequence, n.key, n.detail
FROM (
    SELECT v.*, count(*) OVER (PARTITION BY rule) AS count,
           row_number() OVER (PARTITION BY rule ORDER BY batch_no, subject_id, sequence) AS place
    FROM violations v
) n
LEFT JOIN holdfast.subject s ON s.id = n.subject_id
WHERE n.place <= %(limit)s
UNION ALL
SELECT NULL, count(*), NULL, NULL, NULL, NULL, NULL, 'entries' FROM found
