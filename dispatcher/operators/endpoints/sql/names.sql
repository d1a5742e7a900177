-- The names of all endpoints.
-- Uses uq_endpoint_name, or reads the table: a handful of rows.
SELECT name FROM holdfast.endpoint ORDER BY name
