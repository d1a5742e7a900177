-- Returns the newest transitions, including refused ones.
-- Index: uq_hold_history_arrival.
SELECT merchant_id, sequence, action, effect, exposure_minor, currency, window_end, applied_at
  FROM payouts.hold_history
 ORDER BY arrival DESC
 LIMIT %(limit)s
