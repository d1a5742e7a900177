-- Every key that a receiver first processed in a time range; read once, through a cursor.
-- Scans the inbox once, or uses an index on received_at if there is one; sorts nothing.
SELECT key, subject, sequence, outcome, body_sha256, received_at
FROM {schema}.inbox
WHERE received_at >= %(since)s AND received_at < %(until)s
  AND (%(subject)s::text IS NULL OR subject = %(subject)s::text)
