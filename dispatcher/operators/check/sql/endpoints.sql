-- Endpoints with the types that each takes, and since when.
-- Reads every endpoint, and operator_action once.
SELECT p.id, p.name, p.types, (
           SELECT max(o.acted_at) + interval '1 minute'
           FROM holdfast.operator_action o
           WHERE o.target = p.name AND o.action = 'endpoint.set' AND o.detail #> '{after,types}' IS NOT NULL
       ) AS judged_from
FROM holdfast.endpoint p
WHERE %(endpoint)s::text IS NULL OR p.name = %(endpoint)s::text
ORDER BY p.id
