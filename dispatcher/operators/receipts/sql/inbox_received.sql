-- Every key that a receiver dealt with first in a time; read once, through a cursor.
-- Reads the inbox once from one end to the other, or by an index on received_at where it has one; sorts nothing.
SELECT key, subject, sequence, outcome, body_sha256, received_at
FROM {schema}.inbox
WHERE received_at >= %(since)s AND received_at < %(until)s
  AND (%(subject)s::text IS NULL OR subject = %(subject)s::text)
