-- Returns one page of held merchants, by merchant; the next page starts after the last one.
-- Index: ix_hold_held.
SELECT merchant_id, since, sequence, exposure_minor, limit_minor, currency, window_start, window_end,
       key
  FROM payouts.hold
 WHERE held
   AND merchant_id > %(after)s
 ORDER BY merchant_id
 LIMIT %(limit)s
