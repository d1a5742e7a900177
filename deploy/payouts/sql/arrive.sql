-- Numbers a verified delivery as it arrives, before anything is known of it.
-- No index: a sequence. Gaps are deliveries whose transaction did not commit.
SELECT nextval('payouts.arrival') AS arrival
