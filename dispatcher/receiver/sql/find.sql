-- What is known of a key: the hash of its body and what became of it the first time.
-- Index: pk_inbox.
SELECT body_sha256, outcome, result, received_at
  FROM {schema}.inbox
 WHERE key = %(key)s
