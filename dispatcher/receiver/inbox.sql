-- The receiver's inbox: the keys of handled deliveries, the latest sequence of each subject, and the functions that a
-- receiver in any language calls. A delivery is: verify, BEGIN, inbox_receive, the service's own action, COMMIT, answer.
--
--   psql -1 -f inbox.sql                                 in the schema `payouts`
--   sed 's/payouts/my_schema/g' inbox.sql | psql -1      in another schema
--
-- Run it again to upgrade: it keeps the data, and does nothing where nothing changed. Run it as the owner of the schema.
-- A service's own role needs
--
--   GRANT USAGE ON SCHEMA payouts TO my_service;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON payouts.inbox TO my_service;
--   GRANT SELECT, INSERT, UPDATE ON payouts.inbox_subject TO my_service;
--
-- payouts.inbox_receive(key text, body_sha256 bytea, subject text, sequence bigint)
--     -> one row (outcome text, applied_at timestamptz, result jsonb, replayed boolean)
--   Call it in a transaction, before the action; the transaction decides about both. It waits for no other delivery.
--     applied    new key: act, then COMMIT. `applied_at` is now.
--     stale      the subject has this sequence or a later one: do not act, COMMIT. `replayed` if it was stale before.
--     duplicate  the same key and body were applied before: do not act. `applied_at` and `result` are the first ones.
--     running    another transaction works on this key or this subject: do not act; answer 409 with `retry-after: 1`
--                (`in_progress` on the wire). No time, no result.
--     conflict   the key is known with another body: do not act; answer 422. No time, no result.
--   Errors (SQLSTATE); after any of them nothing is kept, and it is safe to answer 503:
--     25P01      at COMMIT: the call was a transaction of its own (autocommit), which would keep a key without its action.
--                BEGIN, the call and COMMIT must be separate messages to the server.
--     23502, 23514   an argument is NULL, or no key (`hf_` and 32 hex digits), SHA-256 (32 bytes) or sequence (from 1).
--     40001      only in REPEATABLE READ and SERIALIZABLE: another delivery committed meanwhile.
--     42883, 3F000, 42P01   this file was not run, or in another schema.
--
-- payouts.inbox_result(key text, result jsonb) -> void
--   Keeps the service's own result of the action, once, for repeats of the delivery. Call it after the action, in the same
--   transaction. P0002: no such key was applied, or it has a result.
--
-- payouts.inbox_find(key text)
--     -> one row (outcome text, applied_at timestamptz, result jsonb, body_sha256 text), or none if the key is unknown
--   For inquiries. `outcome` is the first one: `applied` or `stale`. `body_sha256` is 64 lower-case hex digits.
--
-- payouts.inbox_prune(keep interval, keys_max integer DEFAULT 10000) -> integer
--   Deletes the oldest keys beyond `keep`, at most `keys_max`, and returns their number; call it again while it returns
--   `keys_max`. Runs at the same time share the work. Subjects stay, so a repeat of a deleted key is stale.
--   22023: `keep` is less than 7 days, the time that a sender retries; or `keys_max` is less than 1.
--
-- payouts.inbox_version() -> integer: the version of these functions.

CREATE SCHEMA IF NOT EXISTS payouts;

SELECT pg_advisory_xact_lock(hashtextextended('payouts' || ' inbox', 0));

DO $holdfast$ BEGIN
    IF EXISTS (SELECT FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
                WHERE n.nspname = 'payouts' AND p.proname = 'inbox_version') THEN
        IF payouts.inbox_version() > 2 THEN
            RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'this inbox is of a newer version. Nothing was changed; use its kit';
        END IF;
    END IF;
END $holdfast$;

-- Domains, because Postgres parses a table's CHECK constraints again for each INSERT. A key matches ^hf_[0-9a-f]{32}$,
-- which is checked without a regular expression, because that would be compiled each time.
DO $holdfast$ BEGIN CREATE DOMAIN payouts.inbox_key AS text CONSTRAINT ck_inbox_key
    CHECK (length(VALUE) = 35 AND starts_with(VALUE, 'hf_') AND translate(substr(VALUE, 4), '0123456789abcdef', '') = '')
    ; EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN payouts.inbox_sha256 AS bytea CONSTRAINT ck_inbox_sha256
    CHECK (octet_length(VALUE) = 32); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN payouts.inbox_sequence AS bigint CONSTRAINT ck_inbox_sequence
    CHECK (VALUE >= 1); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

DO $holdfast$ BEGIN CREATE DOMAIN payouts.inbox_outcome AS text CONSTRAINT ck_inbox_outcome
    CHECK (VALUE IN ('applied', 'stale')); EXCEPTION WHEN duplicate_object THEN NULL; END $holdfast$;

CREATE TABLE IF NOT EXISTS payouts.inbox (
    key         payouts.inbox_key      NOT NULL CONSTRAINT pk_inbox PRIMARY KEY,
    body_sha256 payouts.inbox_sha256   NOT NULL,
    subject     text                   NOT NULL,
    sequence    payouts.inbox_sequence NOT NULL,
    outcome     payouts.inbox_outcome  NOT NULL,
    result      jsonb,
    received_at timestamptz            NOT NULL DEFAULT now()
);

-- Only where it is missing: the statement locks the table before it looks. So it is with the trigger below.
DO $holdfast$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE n.nspname = 'payouts' AND c.relname = 'ix_inbox_received_at') THEN
        CREATE INDEX ix_inbox_received_at ON payouts.inbox (received_at);
    END IF;
END $holdfast$;

CREATE TABLE IF NOT EXISTS payouts.inbox_subject (
    subject       text                   NOT NULL CONSTRAINT pk_inbox_subject PRIMARY KEY,
    last_sequence payouts.inbox_sequence NOT NULL
) WITH (fillfactor = 70);

-- The primary key ensures that an action happens once, and the subject's row that a late delivery does not undo a newer
-- one. Neither depends on a lock: the advisory locks only spare a repeat from waiting for the transaction that works on the
-- same key or subject. They are tried, never waited for, so they cannot deadlock. In READ COMMITTED each statement sees
-- what was committed before it; above, such a race is a serialization failure. Uses pk_inbox and pk_inbox_subject.
CREATE OR REPLACE FUNCTION payouts.inbox_receive(key text, body_sha256 bytea, subject text, sequence bigint,
    OUT outcome text, OUT applied_at timestamptz, OUT result jsonb, OUT replayed boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_column
DECLARE
    known payouts.inbox;
BEGIN
    replayed := false;
    SELECT * INTO known FROM payouts.inbox AS i WHERE i.key = inbox_receive.key;
    IF NOT FOUND THEN
        IF NOT (pg_try_advisory_xact_lock(hashtextextended('payouts' || ' key ' || inbox_receive.key, 0))
            AND pg_try_advisory_xact_lock(hashtextextended('payouts' || ' subject ' || inbox_receive.subject, 0))) THEN
            outcome := 'running';
            RETURN;
        END IF;
        applied_at := statement_timestamp();
        INSERT INTO payouts.inbox (key, body_sha256, subject, sequence, outcome, received_at)
        VALUES (inbox_receive.key, inbox_receive.body_sha256, inbox_receive.subject, inbox_receive.sequence,
                'applied', inbox_receive.applied_at)
        ON CONFLICT (key) DO NOTHING;
        IF FOUND THEN
            INSERT INTO payouts.inbox_subject AS s (subject, last_sequence)
            VALUES (inbox_receive.subject, inbox_receive.sequence)
            ON CONFLICT (subject) DO UPDATE SET last_sequence = excluded.last_sequence
                WHERE s.last_sequence < excluded.last_sequence;
            outcome := CASE WHEN FOUND THEN 'applied' ELSE 'stale' END;
            IF NOT FOUND THEN
                UPDATE payouts.inbox AS i SET outcome = 'stale' WHERE i.key = inbox_receive.key;
            END IF;
            RETURN;
        END IF;
        -- It was committed between the look and the locks.
        SELECT * INTO STRICT known FROM payouts.inbox AS i WHERE i.key = inbox_receive.key;
    END IF;
    IF known.body_sha256 = inbox_receive.body_sha256 THEN
        -- A stale delivery was never applied, so a repeat of it is not a duplicate.
        outcome := CASE known.outcome WHEN 'stale' THEN 'stale' ELSE 'duplicate' END;
        applied_at := known.received_at;
        result := known.result;
        replayed := true;
    ELSE
        outcome := 'conflict';
        applied_at := NULL;
    END IF;
END $holdfast$;

-- At COMMIT: refuses a key whose transaction consisted of the call alone. Each message to the server has its own
-- statement_timestamp(). In autocommit the transaction ends with the message of the call; after BEGIN it ends with
-- another one. SET CONSTRAINTS IMMEDIATE, which exists only after BEGIN, runs this inside the call: that is no COMMIT.
CREATE OR REPLACE FUNCTION payouts.inbox_commit() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    context text;
BEGIN
    IF NEW.received_at = statement_timestamp() THEN
        GET DIAGNOSTICS context = PG_CONTEXT;
        IF strpos(context, 'inbox_receive') = 0 THEN
            RAISE EXCEPTION USING ERRCODE = 'no_active_sql_transaction',
                MESSAGE = 'inbox_receive was called outside of a transaction, so the key would be kept without its action',
                HINT = 'Nothing was kept. Send BEGIN, the call, the action and COMMIT as separate messages.';
        END IF;
    END IF;
    RETURN NULL;
END $holdfast$;

DO $holdfast$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
                     JOIN pg_namespace AS n ON n.oid = c.relnamespace
                    WHERE n.nspname = 'payouts' AND c.relname = 'inbox' AND t.tgname = 'tr_inbox_commit') THEN
        CREATE CONSTRAINT TRIGGER tr_inbox_commit AFTER INSERT ON payouts.inbox DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION payouts.inbox_commit();
    END IF;
END $holdfast$;

CREATE OR REPLACE FUNCTION payouts.inbox_result(key text, result jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
#variable_conflict use_column
BEGIN
    UPDATE payouts.inbox AS i SET result = inbox_result.result
     WHERE i.key = inbox_result.key AND i.outcome = 'applied' AND i.result IS NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'no_data_found',
            MESSAGE = 'no applied delivery without a result has the key ' || coalesce(inbox_result.key, 'NULL');
    END IF;
END $holdfast$;

CREATE OR REPLACE FUNCTION payouts.inbox_find(key text)
RETURNS TABLE (outcome text, applied_at timestamptz, result jsonb, body_sha256 text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $holdfast$
    SELECT i.outcome, i.received_at, i.result, encode(i.body_sha256, 'hex') FROM payouts.inbox AS i WHERE i.key = inbox_find.key
$holdfast$;

-- Uses ix_inbox_received_at and pk_inbox. Runs at the same time skip each other's rows.
CREATE OR REPLACE FUNCTION payouts.inbox_prune(keep interval, keys_max integer DEFAULT 10000) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $holdfast$
DECLARE
    deleted integer;
BEGIN
    IF keep IS NULL OR keep < interval '7 days' OR keys_max IS NULL OR keys_max < 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'inbox_prune keeps keys for at least 7 days and deletes at least 1 of them';
    END IF;
    DELETE FROM payouts.inbox WHERE key IN (
        SELECT i.key FROM payouts.inbox AS i WHERE i.received_at < now() - keep
         ORDER BY i.received_at LIMIT keys_max FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END $holdfast$;

CREATE OR REPLACE FUNCTION payouts.inbox_version() RETURNS integer
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $holdfast$ SELECT 2 $holdfast$;
