-- The endpoint, if it is to get every entry that is stored.
-- Index: uq_endpoint_name.
SELECT id FROM holdfast.endpoint WHERE name = %(name)s AND starts_at IS NULL
