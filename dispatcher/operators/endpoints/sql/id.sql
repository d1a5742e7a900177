-- The number of an endpoint; no row where none has this name.
-- Uses uq_endpoint_name.
SELECT id FROM holdfast.endpoint WHERE name = %(endpoint)s
