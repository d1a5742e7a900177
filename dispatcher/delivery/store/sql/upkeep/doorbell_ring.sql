-- Notifies the doorbell with a given payload. A separate transaction, because commits with notifications wait for each
-- other. Needs no index.
SELECT pg_notify('holdfast_doorbell', %(word)s)
