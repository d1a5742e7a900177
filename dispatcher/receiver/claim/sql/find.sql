-- What is known of a key: the hash of its body and what became of it the first time.
-- Index: pk_inbox. Nothing in it depends on how the session writes texts, bytes or times.
SELECT encode(body_sha256, 'hex'), outcome::text, encode(convert_to(result::text, 'UTF8'), 'hex'),
       (extract(epoch FROM received_at) * 1000000)::bigint
  FROM {schema}.inbox
 WHERE key = %(key)s
