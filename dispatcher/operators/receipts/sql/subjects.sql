-- The id of a subject by its name; without a name, the highest id.
-- Uses uq_subject_name or pk_subject.
SELECT CASE WHEN %(name)s::text IS NULL THEN (SELECT max(id) FROM holdfast.subject)
            ELSE (SELECT id FROM holdfast.subject WHERE name = %(name)s::text) END AS id
