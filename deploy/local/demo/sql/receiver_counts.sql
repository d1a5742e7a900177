-- Returns the payouts service's counts: verified deliveries, their outcomes, and merchants held now.
-- Index: ix_hold_held; delivery_log is scanned, because it is small and read once a second.
SELECT (SELECT count(*) FROM payouts.hold WHERE held) AS held,
       count(*) AS received,
       count(*) FILTER (WHERE outcome = 'applied') AS applied,
       count(*) FILTER (WHERE outcome = 'duplicate') AS duplicates
  FROM payouts.delivery_log
