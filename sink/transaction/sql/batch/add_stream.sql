-- Creates the row of a stream where there is none; two first runs at once create one row. `acts_for` of an existing row stays.
-- Index: pk_stream.
INSERT INTO holdfast.stream (name, acts_for) VALUES (%(stream)s, %(acts_for)s) ON CONFLICT (name) DO NOTHING
