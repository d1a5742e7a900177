-- Removes the inbox: with its keys goes all that tells a repeated delivery from a new one.
-- The schema stays, because other tables may be in it.

DROP TABLE IF EXISTS {schema}.inbox;

DROP TABLE IF EXISTS {schema}.inbox_subject;

DROP DOMAIN IF EXISTS {schema}.inbox_key;

DROP DOMAIN IF EXISTS {schema}.inbox_sha256;

DROP DOMAIN IF EXISTS {schema}.inbox_sequence;

DROP DOMAIN IF EXISTS {schema}.inbox_outcome;
