-- Drops the inbox. Without its keys, a repeated delivery is applied again.
-- The schema stays, because it may contain other tables.

DROP TABLE IF EXISTS payouts.inbox;

DROP TABLE IF EXISTS payouts.inbox_subject;

DROP FUNCTION IF EXISTS payouts.inbox_receive, payouts.inbox_result, payouts.inbox_find, payouts.inbox_prune,
    payouts.inbox_commit, payouts.inbox_version;

DROP DOMAIN IF EXISTS payouts.inbox_key;

DROP DOMAIN IF EXISTS payouts.inbox_sha256;

DROP DOMAIN IF EXISTS payouts.inbox_sequence;

DROP DOMAIN IF EXISTS payouts.inbox_outcome;
