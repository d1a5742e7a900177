-- Returns every action that the payouts service applied, in order. Includes a delivery logged as applied without a row of
-- history, so that the audit does not depend on the service's constraints.
-- Index: uq_hold_history_arrival.
SELECT coalesce(done.key, logged.key) AS key,
       coalesce(done.merchant_id, logged.subject) AS merchant_id,
       coalesce(done.action, 'unrecorded') AS action,
       done.window_end,
       done.exposure_minor,
       done.applied_at
  FROM payouts.hold_history AS done
  FULL JOIN (SELECT * FROM payouts.delivery_log WHERE outcome = 'applied') AS logged USING (arrival)
 WHERE done.effect IS DISTINCT FROM 'refused_transition'
 ORDER BY arrival
