-- The id of an endpoint; no row for an unknown name.
-- Uses uq_endpoint_name.
SELECT id FROM holdfast.endpoint WHERE name = %(endpoint)s
