-- The inbox: the keys of handled deliveries, and the latest sequence of each subject. The service chooses the schema.
-- Safe to run again: it never changes existing objects. Each statement ends with a semicolon at the end of a line.

CREATE SCHEMA IF NOT EXISTS {schema};

-- Domains, because Postgres parses a table's CHECK constraints again for each INSERT. A key matches ^hf_[0-9a-f]{{32}}$,
-- which is checked without a regular expression, because that would be compiled each time.
DO $holdfast$ BEGIN CREATE DOMAIN {schema}.inbox_key AS text CONSTRAINT ck_inbox_key
    CHECK (length(VALUE) = 35 AND starts_with(VALUE, 'hf_') AND translate(substr(VALUE, 4), '0123456789abcdef', '') = '')
    ; EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN {schema}.inbox_sha256 AS bytea CONSTRAINT ck_inbox_sha256
    CHECK (octet_length(VALUE) = 32); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN {schema}.inbox_sequence AS bigint CONSTRAINT ck_inbox_sequence
    CHECK (VALUE >= 1); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN {schema}.inbox_outcome AS text CONSTRAINT ck_inbox_outcome
    CHECK (VALUE IN ('applied', 'stale')); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

CREATE TABLE IF NOT EXISTS {schema}.inbox (
    key         {schema}.inbox_key      NOT NULL CONSTRAINT pk_inbox PRIMARY KEY,
    body_sha256 {schema}.inbox_sha256   NOT NULL,
    subject     text                    NOT NULL,
    sequence    {schema}.inbox_sequence NOT NULL,
    outcome     {schema}.inbox_outcome  NOT NULL,
    result      jsonb,
    received_at timestamptz             NOT NULL DEFAULT now()
);

CREATE INDEX IF NOT EXISTS ix_inbox_received_at ON {schema}.inbox (received_at);

CREATE TABLE IF NOT EXISTS {schema}.inbox_subject (
    subject       text                    NOT NULL CONSTRAINT pk_inbox_subject PRIMARY KEY,
    last_sequence {schema}.inbox_sequence NOT NULL
) WITH (fillfactor = 70);
