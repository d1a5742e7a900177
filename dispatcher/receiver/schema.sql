-- The inbox: which keys were dealt with, and how far each subject has come. The service chooses the schema.
-- Safe to run again; it never changes what is there.

CREATE SCHEMA IF NOT EXISTS {schema};

CREATE TABLE IF NOT EXISTS {schema}.inbox (
    key         text        NOT NULL CONSTRAINT pk_inbox PRIMARY KEY,
    body_sha256 bytea       NOT NULL,
    subject     text        NOT NULL,
    sequence    bigint      NOT NULL,
    outcome     text        NOT NULL,
    result      jsonb,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ck_inbox_key CHECK (key ~ '^hf_[0-9a-f]{{32}}$'),
    CONSTRAINT ck_inbox_body_sha256 CHECK (octet_length(body_sha256) = 32),
    CONSTRAINT ck_inbox_sequence CHECK (sequence >= 1),
    CONSTRAINT ck_inbox_outcome CHECK (outcome IN ('applied', 'stale'))
);

CREATE TABLE IF NOT EXISTS {schema}.inbox_subject (
    subject       text   NOT NULL CONSTRAINT pk_inbox_subject PRIMARY KEY,
    last_sequence bigint NOT NULL,
    CONSTRAINT ck_inbox_subject_last_sequence CHECK (last_sequence >= 1)
) WITH (fillfactor = 70);
