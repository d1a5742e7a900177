-- The ids of an endpoint and a subject; null for an unknown name.
-- Uses uq_endpoint_name, uq_subject_name.
SELECT (SELECT id FROM holdfast.endpoint WHERE name = %(endpoint)s) AS endpoint_id,
       (SELECT id FROM holdfast.subject WHERE name = %(subject)s) AS subject_id
