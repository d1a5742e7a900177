-- Which run has the stream now: the one that started last.
-- Index: pk_stream.
SELECT run_id FROM holdfast.stream WHERE name = %(stream)s
