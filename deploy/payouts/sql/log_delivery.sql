-- Appends one verified delivery with its outcome to the log.
-- Index: pk_delivery_log.
INSERT INTO payouts.delivery_log (arrival, key, type, subject, sequence, outcome, body_sha256)
VALUES (
    %(arrival)s, %(key)s, %(type)s, %(subject)s, %(sequence)s, %(outcome)s, %(body_sha256)s
)
