-- Makes the stream's row where there is none; two first runs at once make one row.
-- Index: pk_stream.
INSERT INTO holdfast.stream (name) VALUES (%(stream)s) ON CONFLICT (name) DO NOTHING
