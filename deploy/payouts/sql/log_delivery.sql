-- Appends one verified delivery, whatever became of it.
-- Index: pk_delivery_log.
INSERT INTO payouts.delivery_log (arrival, key, type, subject, sequence, outcome, body_sha256)
VALUES (
    %(arrival)s, %(key)s, %(type)s, %(subject)s, %(sequence)s, %(outcome)s, %(body_sha256)s
)
