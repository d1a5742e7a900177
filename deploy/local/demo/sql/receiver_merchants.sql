-- Returns the actions on some merchants so far, oldest first.
-- Index: pk_hold_history.
SELECT merchant_id, action, window_start, window_end, exposure_minor, limit_minor, currency, applied_at
  FROM payouts.hold_history
 WHERE merchant_id = ANY (%(merchants)s)
   AND effect = 'applied'
 ORDER BY arrival
