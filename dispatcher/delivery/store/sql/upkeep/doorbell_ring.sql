-- Rings the doorbell with a word of our own, which the listener knows. Notifying commits wait for each other, so this
-- is a transaction of its own. Needs no index.
SELECT pg_notify('holdfast_doorbell', %(word)s)
