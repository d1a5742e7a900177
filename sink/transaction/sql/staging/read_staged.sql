-- The columns by which staged entries are numbered, in order; a key as 32 hex digits.
-- No index: it reads all of the table.
COPY (
    SELECT
        subject, type, replace(key::text, '-', ''), replace(content::text, '-', ''), occurred_at
    FROM pg_temp.holdfast_staged ORDER BY ordinal
) TO STDOUT (FORMAT csv)
