-- The names of all streams.
-- Uses pk_stream.
SELECT name FROM holdfast.stream ORDER BY name
