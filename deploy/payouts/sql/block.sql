-- Holds a merchant that is not held. If it is already held, changes nothing and returns no row.
-- Index: pk_hold.
INSERT INTO payouts.hold AS current (
    merchant_id, held, since, sequence, exposure_minor, limit_minor, currency,
    window_start, window_end, key
) VALUES (
    %(merchant_id)s, true, now(), %(sequence)s, %(exposure_minor)s, %(limit_minor)s, %(currency)s,
    %(window_start)s, %(window_end)s, %(key)s
)
ON CONFLICT (merchant_id) DO UPDATE
   SET held = true,
       since = excluded.since,
       sequence = excluded.sequence,
       exposure_minor = excluded.exposure_minor,
       limit_minor = excluded.limit_minor,
       currency = excluded.currency,
       window_start = excluded.window_start,
       window_end = excluded.window_end,
       key = excluded.key
 WHERE NOT current.held
RETURNING merchant_id
