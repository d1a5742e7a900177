-- Some staged entries as a person compares them, in the order asked for.
-- No index: it reads all of the table.
SELECT subject, type, occurred_at, head, tail
FROM unnest(%(ordinals)s::bigint[]) WITH ORDINALITY AS wanted (ordinal, place)
JOIN pg_temp.holdfast_staged USING (ordinal)
ORDER BY wanted.place
