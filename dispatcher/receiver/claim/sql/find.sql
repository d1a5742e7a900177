-- Returns the stored row of a key: the hash of its body, its first outcome and its result.
-- Index: pk_inbox. The output does not depend on the session's encoding, bytea_output, DateStyle or time zone.
SELECT encode(body_sha256, 'hex'), outcome::text, encode(convert_to(result::text, 'UTF8'), 'hex'),
       (extract(epoch FROM received_at) * 1000000)::bigint
  FROM {schema}.inbox
 WHERE key = %(key)s
