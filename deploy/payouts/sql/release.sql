-- Releases a held merchant. If it is not held, changes nothing and returns no row.
-- Index: pk_hold.
UPDATE payouts.hold
   SET held = false,
       since = now(),
       sequence = %(sequence)s,
       exposure_minor = %(exposure_minor)s,
       limit_minor = %(limit_minor)s,
       currency = %(currency)s,
       window_start = %(window_start)s,
       window_end = %(window_end)s,
       key = %(key)s
 WHERE merchant_id = %(merchant_id)s
   AND held
RETURNING merchant_id
