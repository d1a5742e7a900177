-- Limits a replay to its first N items.
-- Reads all of a temporary table.
DELETE FROM pg_temp.holdfast_found WHERE kind <> 'nothing' AND place > %(limit)s
