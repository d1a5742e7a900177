-- Counts held merchants.
-- Index: ix_hold_held, which holds these merchants alone.
SELECT count(*) AS held FROM payouts.hold WHERE held
