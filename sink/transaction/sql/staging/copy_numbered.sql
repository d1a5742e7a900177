-- Streams the numbers of staged entries.
-- No index.
COPY pg_temp.holdfast_numbered (ordinal, subject_id, sequence) FROM STDIN (FORMAT csv)
