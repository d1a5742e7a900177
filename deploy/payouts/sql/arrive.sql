-- Returns the arrival number of a verified delivery, before it is handled.
-- No index: a sequence. Gaps are deliveries whose transaction did not commit.
SELECT nextval('payouts.arrival') AS arrival
