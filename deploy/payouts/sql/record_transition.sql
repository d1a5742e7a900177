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
