-- What the endpoints that may be sent to refer to: names of secrets, of certificates, of tokens in headers.
-- Reads the table: a handful of rows.
SELECT id, name, url, secret_refs, headers, ca_ref, client_cert_ref, client_key_ref
FROM holdfast.endpoint
WHERE state <> 'disabled'
ORDER BY name
