-- The stream whose transition states the entries of a stream use: usually its own; no row for an unknown stream.
-- Index: pk_stream.
SELECT coalesce(acts_for, name) AS acts_for FROM holdfast.stream WHERE name = %(stream)s
