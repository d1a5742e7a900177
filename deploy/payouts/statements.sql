-- name: arrive
-- Returns the arrival number of a verified delivery, before it is handled.
-- No index: a sequence. Gaps are deliveries whose transaction did not commit.
SELECT nextval('payouts.arrival') AS arrival


-- name: block
-- Holds a merchant that is not held, or by hand one that is held. Else changes nothing and returns no row.
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
       since = CASE WHEN current.held THEN current.since ELSE excluded.since END,
       sequence = excluded.sequence,
       exposure_minor = excluded.exposure_minor,
       limit_minor = excluded.limit_minor,
       currency = excluded.currency,
       window_start = excluded.window_start,
       window_end = excluded.window_end,
       key = excluded.key
 WHERE NOT current.held OR excluded.window_end IS NULL
RETURNING merchant_id


-- name: count
-- Counts held merchants, deliveries by outcome, and refused transitions.
-- Index: ix_hold_held. The other two scan append-only tables, for a page that people open.
SELECT (SELECT count(*) FROM payouts.hold WHERE held) AS held,
       count(*) FILTER (WHERE outcome = 'applied') AS applied,
       count(*) FILTER (WHERE outcome = 'duplicate') AS duplicate,
       count(*) FILTER (WHERE outcome = 'stale') AS stale,
       count(*) FILTER (WHERE outcome = 'in_progress') AS in_progress,
       count(*) FILTER (WHERE outcome = 'conflict') AS conflict,
       count(*) FILTER (WHERE outcome = 'refused') AS refused,
       (SELECT count(*) FROM payouts.hold_history WHERE effect = 'refused_transition')
           AS refused_transition
  FROM payouts.delivery_log


-- name: count_held
-- Counts held merchants.
-- Index: ix_hold_held, which holds these merchants alone.
SELECT count(*) AS held FROM payouts.hold WHERE held


-- name: find_tables
-- Returns whether this version of the tables and of the inbox's functions exists; they are created in one transaction.
-- No index: reads the catalogue, which does not wait for locks on the tables.
SELECT to_regclass('payouts.delivery_log') IS NOT NULL
   AND to_regproc('payouts.inbox_receive') IS NOT NULL
   AND EXISTS (
       SELECT FROM pg_attribute
       WHERE attrelid = to_regclass('payouts.hold_history') AND attname = 'window_end' AND NOT attnotnull
   ) AS there


-- name: list_held
-- Returns one page of held merchants, by merchant; the next page starts after the last one.
-- Index: ix_hold_held.
SELECT merchant_id, since, sequence, exposure_minor, limit_minor, currency, window_start, window_end,
       key
  FROM payouts.hold
 WHERE held
   AND merchant_id > %(after)s
 ORDER BY merchant_id
 LIMIT %(limit)s


-- name: list_transitions
-- Returns the newest transitions, including refused ones.
-- Index: uq_hold_history_arrival.
SELECT merchant_id, sequence, action, effect, exposure_minor, currency, window_end, applied_at
  FROM payouts.hold_history
 ORDER BY arrival DESC
 LIMIT %(limit)s


-- name: lock_schema
-- Serializes the creation of the tables, so that concurrent first starts do not race.
-- No index: waits for a transaction-level advisory lock.
SELECT pg_advisory_xact_lock(hashtextextended('payouts schema', 0))


-- name: log_delivery
-- Appends one verified delivery with its outcome to the log.
-- Index: pk_delivery_log.
INSERT INTO payouts.delivery_log (arrival, key, type, subject, sequence, outcome, body_sha256)
VALUES (
    %(arrival)s, %(key)s, %(type)s, %(subject)s, %(sequence)s, %(outcome)s, %(body_sha256)s
)


-- name: ping
-- Checks that the database answers and that the tables exist.
-- Index: none; reads at most one row.
SELECT EXISTS (SELECT FROM payouts.hold) AS ready


-- name: record_transition
-- Appends the effect of a delivery on a merchant's hold; a second row for the same sequence or key fails.
-- Index: pk_hold_history, uq_hold_history_key.
INSERT INTO payouts.hold_history (
    merchant_id, sequence, action, effect, key, arrival, window_start, window_end, revision,
    exposure_minor, limit_minor, release_level_minor, currency, policy_version
) VALUES (
    %(merchant_id)s, %(sequence)s, %(action)s, %(effect)s, %(key)s, %(arrival)s, %(window_start)s,
    %(window_end)s, %(revision)s, %(exposure_minor)s, %(limit_minor)s, %(release_level_minor)s,
    %(currency)s, %(policy_version)s
)


-- name: release
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


-- name: session
-- Sets time limits for statements, lock waits and idle transactions, so that nothing hangs, and restricts search_path to
-- pg_catalog. No index: settings of the session.
SELECT pg_catalog.set_config('statement_timeout', '10s', false),
       pg_catalog.set_config('lock_timeout', '2s', false),
       pg_catalog.set_config('idle_in_transaction_session_timeout', '15s', false),
       pg_catalog.set_config('timezone', 'UTC', false),
       pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)
