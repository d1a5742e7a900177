-- The run that took the stream last.
-- Index: pk_stream.
SELECT run_id FROM holdfast.stream WHERE name = %(stream)s
