-- name: newest_batch
-- Returns the last batch that the sink committed, to prove that Spark was killed after the commit.
-- Index: uq_batch_batch_no.
SELECT batch_id, entry_count FROM holdfast.batch ORDER BY batch_no DESC LIMIT 1


-- name: outbox_actions
-- Returns every decision in the outbox, in the order of each merchant.
-- No index: the demo's outbox is small, and read whole.
SELECT replace(entry.key::text, '-', '') AS key,
       subject.name AS merchant_id,
       split_part(entry.type, '.', 2) AS action,
       convert_from(entry.body, 'UTF8')::jsonb -> 'data' ->> 'window_end' AS window_end,
       (convert_from(entry.body, 'UTF8')::jsonb -> 'data' ->> 'exposure_minor')::bigint AS exposure_minor
  FROM holdfast.entry JOIN holdfast.subject ON subject.id = entry.subject_id
 ORDER BY subject.name, entry.sequence


-- name: outbox_windows
-- Returns the newest revision of every emitted window.
-- No index: the demo's table is small, and read whole.
SELECT merchant_id, extract(epoch FROM window_end)::bigint * 1000000 AS window_end, revision, exposure_minor
  FROM holdfast.exposure_window
 ORDER BY merchant_id, window_end


-- name: progress
-- Returns the progress of sink and dispatcher, for the live view only; the audit does not use it.
-- No index: small tables, read once a second.
SELECT (SELECT count(*) FROM holdfast.batch) AS batches,
       (SELECT count(*) FROM holdfast.quarantine) AS quarantined,
       (SELECT count(*) FROM holdfast.entry) AS entries,
       (SELECT count(*) FROM holdfast.attempt) AS attempts,
       (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'delivered') AS delivered,
       (SELECT count(*) FROM holdfast.attempt WHERE outcome = 'unknown') AS unknown_outcomes


-- name: receiver_actions
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


-- name: receiver_counts
-- Returns the payouts service's counts: verified deliveries, their outcomes, and merchants held now.
-- Index: ix_hold_held; delivery_log is scanned, because it is small and read once a second.
SELECT (SELECT count(*) FROM payouts.hold WHERE held) AS held,
       count(*) AS received,
       count(*) FILTER (WHERE outcome = 'applied') AS applied,
       count(*) FILTER (WHERE outcome = 'duplicate') AS duplicates
  FROM payouts.delivery_log


-- name: receiver_merchants
-- Returns the actions on some merchants so far, oldest first.
-- Index: pk_hold_history.
SELECT merchant_id, action, window_start, window_end, exposure_minor, limit_minor, currency, applied_at
  FROM payouts.hold_history
 WHERE merchant_id = ANY (%(merchants)s)
   AND effect = 'applied'
 ORDER BY arrival
