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
