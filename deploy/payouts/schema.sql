-- The payouts service's tables, in the same schema as the inbox.
-- Safe to run again: it changes of existing objects only which columns may be null, as an older version had them.
-- A decision that a person made has no window, and nothing that belongs to one.

CREATE TABLE IF NOT EXISTS payouts.hold (
    merchant_id    text        NOT NULL CONSTRAINT pk_hold PRIMARY KEY,
    held           boolean     NOT NULL,
    since          timestamptz NOT NULL,
    sequence       bigint      NOT NULL,
    exposure_minor bigint,
    limit_minor    bigint,
    currency       text,
    window_start   timestamptz,
    window_end     timestamptz,
    key            text        NOT NULL,
    CONSTRAINT ck_hold_sequence CHECK (sequence >= 1),
    CONSTRAINT ck_hold_window CHECK (window_start < window_end)
);

CREATE INDEX IF NOT EXISTS ix_hold_held ON payouts.hold (merchant_id) WHERE held;

ALTER TABLE payouts.hold
    ALTER COLUMN exposure_minor DROP NOT NULL,
    ALTER COLUMN limit_minor DROP NOT NULL,
    ALTER COLUMN currency DROP NOT NULL,
    ALTER COLUMN window_start DROP NOT NULL,
    ALTER COLUMN window_end DROP NOT NULL;

-- One number for each verified delivery, in order of arrival.
CREATE SEQUENCE IF NOT EXISTS payouts.arrival;

CREATE TABLE IF NOT EXISTS payouts.hold_history (
    merchant_id         text        NOT NULL,
    sequence            bigint      NOT NULL,
    action              text        NOT NULL,
    effect              text        NOT NULL,
    key                 text        NOT NULL CONSTRAINT uq_hold_history_key UNIQUE,
    arrival             bigint      NOT NULL CONSTRAINT uq_hold_history_arrival UNIQUE,
    window_start        timestamptz,
    window_end          timestamptz,
    revision            integer,
    exposure_minor      bigint,
    limit_minor         bigint,
    release_level_minor bigint,
    currency            text,
    policy_version      text,
    applied_at          timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_hold_history PRIMARY KEY (merchant_id, sequence),
    CONSTRAINT ck_hold_history_action CHECK (action IN ('block', 'release')),
    CONSTRAINT ck_hold_history_effect CHECK (effect IN ('applied', 'refused_transition'))
);

ALTER TABLE payouts.hold_history
    ALTER COLUMN window_start DROP NOT NULL,
    ALTER COLUMN window_end DROP NOT NULL,
    ALTER COLUMN revision DROP NOT NULL,
    ALTER COLUMN exposure_minor DROP NOT NULL,
    ALTER COLUMN limit_minor DROP NOT NULL,
    ALTER COLUMN release_level_minor DROP NOT NULL,
    ALTER COLUMN currency DROP NOT NULL,
    ALTER COLUMN policy_version DROP NOT NULL;

CREATE TABLE IF NOT EXISTS payouts.delivery_log (
    arrival     bigint      NOT NULL CONSTRAINT pk_delivery_log PRIMARY KEY,
    key         text        NOT NULL,
    type        text        NOT NULL,
    subject     text,
    sequence    bigint      NOT NULL,
    outcome     text        NOT NULL,
    body_sha256 bytea       NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT ck_delivery_log_outcome CHECK (
        outcome IN ('applied', 'duplicate', 'stale', 'in_progress', 'conflict', 'refused')
    ),
    CONSTRAINT ck_delivery_log_subject CHECK (outcome = 'refused' OR subject IS NOT NULL)
);

CREATE INDEX IF NOT EXISTS ix_delivery_log_key ON payouts.delivery_log (key);

CREATE OR REPLACE FUNCTION payouts.keep_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END
$$;

CREATE OR REPLACE TRIGGER hold_history_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON payouts.hold_history
    FOR EACH STATEMENT EXECUTE FUNCTION payouts.keep_history();

CREATE OR REPLACE TRIGGER delivery_log_append_only
    BEFORE UPDATE OR DELETE OR TRUNCATE ON payouts.delivery_log
    FOR EACH STATEMENT EXECUTE FUNCTION payouts.keep_history();
