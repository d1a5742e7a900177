-- Drops the inbox. Without its keys, a repeated delivery is applied again.
-- The schema stays, because it may contain other tables.

DROP TABLE IF EXISTS {schema}.inbox;

DROP TABLE IF EXISTS {schema}.inbox_subject;

DROP DOMAIN IF EXISTS {schema}.inbox_key;

DROP DOMAIN IF EXISTS {schema}.inbox_sha256;

DROP DOMAIN IF EXISTS {schema}.inbox_sequence;

DROP DOMAIN IF EXISTS {schema}.inbox_outcome;
