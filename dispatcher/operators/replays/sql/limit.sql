-- Leaves what comes after the first so many items out of a replay.
-- Reads the whole of a temporary table.
DELETE FROM pg_temp.holdfast_found WHERE kind <> 'nothing' AND place > %(limit)s
