-- Returns the days of entry and attempt that are old enough to drop, entries first, oldest first.
-- Index: the catalogue's own.
SELECT parent, day FROM holdfast.days_older_than(%(days)s)
