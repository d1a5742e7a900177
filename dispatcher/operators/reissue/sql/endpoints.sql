-- The endpoints that get what is decided now of a type.
-- Reads the whole of endpoint.
SELECT name FROM holdfast.endpoint
WHERE types = '{}' OR %(type)s = ANY (types)
ORDER BY name
