-- The endpoints that take a type.
-- Reads all of endpoint, a small table.
SELECT name FROM holdfast.endpoint
WHERE types = '{}' OR %(type)s = ANY (types)
ORDER BY name
