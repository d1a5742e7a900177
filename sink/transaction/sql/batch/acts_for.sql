-- The stream whose transition states the entries of a stream belong to: mostly itself; no row where there is no such stream.
-- Index: pk_stream.
SELECT coalesce(acts_for, name) AS acts_for FROM holdfast.stream WHERE name = %(stream)s
