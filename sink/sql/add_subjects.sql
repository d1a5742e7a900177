-- Makes the subjects that are new. In name order, so that two streams wait for each other in one
-- direction only. Index: uq_subject_name.
INSERT INTO holdfast.subject (name)
SELECT subject FROM pg_temp.holdfast_staged GROUP BY subject ORDER BY subject COLLATE "C"
ON CONFLICT (name) DO NOTHING
