-- The references of endpoints that are not disabled: secrets, certificates, headers.
-- Reads all of endpoint, a small table.
SELECT id, name, url, secret_refs, headers, ca_ref, client_cert_ref, client_key_ref
FROM holdfast.endpoint
WHERE state <> 'disabled'
ORDER BY name
