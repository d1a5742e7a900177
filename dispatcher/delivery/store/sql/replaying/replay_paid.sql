-- Stores the time up to which a replay has used up its rate, in the transaction that holds its row.
-- Uses pk_replay.
UPDATE holdfast.replay SET paid_until = %(paid_until)s WHERE id = %(id)s
