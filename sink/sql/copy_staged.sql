-- Streams the entries of a batch into the session's staging table.
-- No index.
COPY pg_temp.holdfast_staged
    (ordinal, subject, type, key, content, occurred_at, priority, traceparent, head, tail)
FROM STDIN (FORMAT csv)
