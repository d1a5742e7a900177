-- What the payouts service counts: deliveries it verified, what became of them, who is held now.
-- Index: ix_hold_held; delivery_log is scanned, it is small and read once a second.
SELECT (SELECT count(*) FROM payouts.hold WHERE held) AS held,
       count(*) AS received,
       count(*) FILTER (WHERE outcome = 'applied') AS applied,
       count(*) FILTER (WHERE outcome = 'duplicate') AS duplicates
  FROM payouts.delivery_log
