-- Creates missing subjects, in name order, so that two streams wait for each other in one direction
-- only. Index: uq_subject_name.
INSERT INTO holdfast.subject (name)
SELECT name FROM unnest(%(names)s::text[]) AS given (name)
WHERE NOT EXISTS (SELECT FROM holdfast.subject AS known WHERE known.name = given.name)
ORDER BY name COLLATE "C"
ON CONFLICT (name) DO NOTHING
