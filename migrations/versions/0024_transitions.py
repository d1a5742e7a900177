"""Transition state per stream and subject, and suppressed rows that are kept.

Until here the last type and the last occurred_at of a subject were shared by all streams that write
it. They move to `transition`, one row for each stream and subject. `<stream>.requeue` and
`<stream>.reissue` act for `<stream>` and share its row; `stream.acts_for` says so. A job may have a
stream of such a name, too: what was written by hand is known by its query id.

Data. Where one stream writes (streams that act for it aside), its rows are copies of the subjects'.
Where several do, each row is computed from the stored entries of that stream. A subject whose
older entries are not stored any more may have been written by a stream of which nothing is left:
such a stream gets a copy of the subject's shared state, which keeps the behaviour of before.

A sink from before this revision cannot write any more: stop it, or it stops with `SchemaMismatch`,
having written nothing.
"""

from alembic import op

revision = "0024"
down_revision = "0023"

# As `uuid5` with the namespace of the contract's `query_id_of`: SHA-1, which Postgres has
# only in an extension. In SQL, because `--sql` has no rows to compute with.
BY_HAND = """
    CREATE FUNCTION holdfast.query_id_by_hand(name text) RETURNS uuid
    LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        low  CONSTANT bigint := 4294967295;
        message bytea := decode('5e4b7f1c9a0d5c368b1e2f7d60a3c948', 'hex')
            || convert_to(name, 'UTF8');
        state bigint[] := ARRAY[1732584193, 4023233417, 2562383102, 271733878, 3285377520];
        w bigint[]; a bigint; b bigint; c bigint; d bigint; e bigint; f bigint; x bigint;
        digest bytea := '';
    BEGIN
        message := message || decode('80', 'hex')
            || decode(repeat('00', mod(119 - mod(length(message), 64), 64)), 'hex')
            || int8send(length(message)::bigint * 8);
        FOR block IN 0 .. length(message) / 64 - 1 LOOP
            a := state[1]; b := state[2]; c := state[3]; d := state[4]; e := state[5];
            FOR i IN 0 .. 79 LOOP
                IF i < 16 THEN
                    x := 0;
                    FOR k IN 0 .. 3 LOOP
                        x := (x << 8) | get_byte(message, block * 64 + i * 4 + k);
                    END LOOP;
                ELSE
                    x := w[i - 3] # w[i - 8] # w[i - 14] # w[i - 16];
                    x := ((x << 1) | (x >> 31)) & low;
                END IF;
                w[i] := x;
                f := CASE i / 20
                    WHEN 0 THEN ((b & c) | ((~b) & d)) + 1518500249
                    WHEN 1 THEN (b # c # d) + 1859775393
                    WHEN 2 THEN ((b & c) | (b & d) | (c & d)) + 2400959708
                    ELSE (b # c # d) + 3395469782 END;
                x := ((((a << 5) | (a >> 27)) & low) + f + e + x) & low;
                e := d; d := c; c := ((b << 30) | (b >> 2)) & low; b := a; a := x;
            END LOOP;
            state := ARRAY[(state[1] + a) & low, (state[2] + b) & low,
                (state[3] + c) & low, (state[4] + d) & low, (state[5] + e) & low];
        END LOOP;
        FOR i IN 1 .. 4 LOOP
            digest := digest || substring(int8send(state[i]) FROM 5);
        END LOOP;
        digest := set_byte(digest, 6, (get_byte(digest, 6) & 15) | 80);
        digest := set_byte(digest, 8, (get_byte(digest, 8) & 63) | 128);
        RETURN encode(digest, 'hex')::uuid;
    END $$
"""
# As `stream_of` of the sink's contract: 63 characters are the most that a name may have.
ACTS_FOR = """
    UPDATE holdfast.stream AS hand
    SET acts_for = base.name
    FROM holdfast.stream AS base
    CROSS JOIN unnest(ARRAY['.requeue', '.reissue']) AS suffix
    WHERE hand.name = CASE
        WHEN length(base.name || suffix) <= 63 THEN base.name || suffix
        ELSE left(base.name, 63 - length(suffix) - 17) || '-'
            || left(encode(sha256(convert_to(base.name, 'UTF8')), 'hex'), 16) || suffix
    END
        AND hand.query_id = holdfast.query_id_by_hand(
            CASE suffix WHEN '.requeue' THEN base.name ELSE hand.name END)
"""
# `payouts.requeue.reissue` acts for `payouts`.
ACTS_FOR_IN_THE_END = """
    UPDATE holdfast.stream AS hand
    SET acts_for = between.acts_for
    FROM holdfast.stream AS between
    WHERE between.name = hand.acts_for AND between.acts_for IS NOT NULL
"""

COPIED = """
    INSERT INTO holdfast.transition (subject_id, stream, last_type, last_occurred_at, updated_at)
    SELECT s.id, base.name, s.last_type, s.last_occurred_at, coalesce(s.last_created_at, now())
    FROM holdfast.subject AS s
    CROSS JOIN (SELECT name FROM holdfast.stream WHERE acts_for IS NULL) AS base
    WHERE s.last_type IS NOT NULL AND s.last_occurred_at IS NOT NULL
        AND (SELECT count(*) FROM holdfast.stream WHERE acts_for IS NULL) = 1
"""
COMPUTED = """
    WITH bases AS (
        SELECT name FROM holdfast.stream WHERE acts_for IS NULL
    ),
    stored AS MATERIALIZED (
        SELECT e.subject_id, coalesce(stream.acts_for, stream.name) AS stream, count(*) AS entries,
            max(e.sequence) AS sequence, max(e.occurred_at) AS occurred_at
        FROM holdfast.entry AS e
        JOIN holdfast.batch AS b USING (batch_no)
        JOIN holdfast.stream ON stream.name = b.stream
        WHERE (SELECT count(*) FROM bases) > 1
        GROUP BY 1, 2
    ),
    incomplete AS (
        SELECT s.id, s.last_type, s.last_occurred_at, s.last_created_at
        FROM holdfast.subject AS s
        WHERE s.last_type IS NOT NULL AND s.last_occurred_at IS NOT NULL
            AND (SELECT count(*) FROM bases) > 1
            AND s.last_sequence > coalesce(
                (SELECT sum(o.entries) FROM stored AS o WHERE o.subject_id = s.id), 0)
    )
    INSERT INTO holdfast.transition (subject_id, stream, last_type, last_occurred_at, updated_at)
    SELECT o.subject_id, o.stream, e.type, o.occurred_at, e.created_at
    FROM stored AS o
    JOIN holdfast.entry AS e ON e.subject_id = o.subject_id AND e.sequence = o.sequence
    UNION ALL
    SELECT i.id, bases.name, i.last_type, i.last_occurred_at, coalesce(i.last_created_at, now())
    FROM incomplete AS i
    CROSS JOIN bases
    WHERE NOT EXISTS (
        SELECT FROM stored AS o WHERE o.subject_id = i.id AND o.stream = bases.name)
"""

# What was written last gave the subject its type; the time never went back.
RESTORED = """
    UPDATE holdfast.subject AS s
    SET last_type = newest.last_type, last_occurred_at = newest.last_occurred_at
    FROM (
        SELECT DISTINCT ON (subject_id) subject_id, last_type,
            max(last_occurred_at) OVER (PARTITION BY subject_id) AS last_occurred_at
        FROM holdfast.transition
        ORDER BY subject_id, updated_at DESC, last_occurred_at DESC
    ) AS newest
    WHERE s.id = newest.subject_id
"""

GRANTS = (
    (
        "SELECT, INSERT, UPDATE (last_type, last_occurred_at, updated_at) ON holdfast.transition"
        " TO holdfast_sink"
    ),
    "SELECT ON holdfast.transition TO holdfast_operator, holdfast_reader",
    # To put a subject right that a date of the future has silenced.
    "UPDATE (last_type, last_occurred_at) ON holdfast.transition TO holdfast_operator",
    "INSERT ON holdfast.suppressed TO holdfast_sink",
    "SELECT ON holdfast.suppressed TO holdfast_operator",
    # Not what a decision says: its key's parts and its data.
    (
        "SELECT (batch_no, subject_id, suppressed_at, key, type, occurred_at, priority, cause,"
        " traceparent) ON holdfast.suppressed TO holdfast_reader"
    ),
)

_REASONS_BEFORE = (
    "'malformed', 'missing_event_id', 'missing_merchant', 'missing_type', 'missing_amount',"
    " 'missing_time', 'bad_text', 'bad_amount', 'bad_time', 'amount_out_of_range',"
    " 'time_out_of_range', 'wrong_currency', 'bad_subject', 'bad_key', 'bad_type', 'bad_data',"
    " 'key_conflict', 'body_too_large'"
)


def upgrade() -> None:
    op.execute("ALTER TYPE holdfast.quarantine_reason ADD VALUE IF NOT EXISTS 'future_dated'")
    op.execute("CREATE TYPE holdfast.suppressed_cause AS ENUM ('repeated', 'overtaken')")
    op.execute("ALTER TABLE holdfast.stream ADD COLUMN acts_for text")
    # What earlier batches suppressed is not stored; of those from here on it is.
    op.execute(
        "ALTER TABLE holdfast.batch ADD COLUMN keeps_suppressed boolean NOT NULL DEFAULT false"
    )
    op.execute("ALTER TABLE holdfast.batch ALTER COLUMN keeps_suppressed SET DEFAULT true")
    op.execute("""
        CREATE TABLE holdfast.transition (
            subject_id       bigint      NOT NULL,
            stream           text        NOT NULL,
            last_type        text        NOT NULL,
            last_occurred_at timestamptz NOT NULL,
            updated_at       timestamptz NOT NULL,
            ahead            boolean     GENERATED ALWAYS AS
                             (last_occurred_at - updated_at > interval '1 day') STORED,
            CONSTRAINT pk_transition PRIMARY KEY (subject_id, stream)
        ) WITH (fillfactor = 70)
    """)
    op.execute("""
        CREATE TABLE holdfast.suppressed (
            batch_no      bigint                    NOT NULL,
            key           uuid                      NOT NULL,
            suppressed_at timestamptz               NOT NULL,
            subject_id    bigint                    NOT NULL,
            type          text                      NOT NULL,
            occurred_at   timestamptz               NOT NULL,
            priority      smallint                  NOT NULL,
            cause         holdfast.suppressed_cause NOT NULL,
            traceparent   text,
            key_parts     text                      NOT NULL,
            data          text                      NOT NULL,
            CONSTRAINT pk_suppressed PRIMARY KEY (batch_no, key, suppressed_at)
        ) PARTITION BY RANGE (suppressed_at)
    """)
    op.execute("""
        CREATE INDEX ix_suppressed_subject_id ON holdfast.suppressed (subject_id, batch_no, key)
    """)
    op.execute("""
        CREATE INDEX ix_suppressed_overtaken ON holdfast.suppressed (batch_no, key)
            WHERE cause = 'overtaken'
    """)
    # Writers wait from here on, so that no subject moves on behind its copy.
    op.execute("LOCK TABLE holdfast.subject IN EXCLUSIVE MODE")
    op.execute(BY_HAND)
    for statement in (ACTS_FOR, ACTS_FOR_IN_THE_END, ACTS_FOR_IN_THE_END, COPIED, COMPUTED):
        op.execute(statement)
    op.execute("DROP FUNCTION holdfast.query_id_by_hand(text)")
    # The sink writes `ahead` anew each time: while it stays false, an update touches no index.
    op.execute("CREATE INDEX ix_transition_ahead ON holdfast.transition (subject_id) WHERE ahead")
    op.execute("""
        ALTER TABLE holdfast.subject DROP COLUMN last_type, DROP COLUMN last_occurred_at
    """)
    for grant in GRANTS:
        op.execute(f"GRANT {grant}")
    op.execute(_ensure_partitions("'entry', 'attempt', 'suppressed'"))
    op.execute(_days_older_than("'entry', 'attempt', 'suppressed'"))
    op.execute(_undelivered_in(_OF_SUPPRESSED))
    op.execute("SELECT holdfast.ensure_partitions()")


def downgrade() -> None:
    op.execute(_ensure_partitions("'entry', 'attempt'"))
    op.execute(_days_older_than("'entry', 'attempt'"))
    op.execute(_undelivered_in(""))
    op.execute("""
        ALTER TABLE holdfast.subject
            ADD COLUMN last_type text, ADD COLUMN last_occurred_at timestamptz
    """)
    op.execute(RESTORED)
    op.execute("""
        GRANT UPDATE (last_type, last_occurred_at) ON holdfast.subject TO holdfast_sink
    """)
    op.execute("DROP TABLE holdfast.suppressed")
    op.execute("DROP TABLE holdfast.transition")
    op.execute("ALTER TABLE holdfast.batch DROP COLUMN keeps_suppressed")
    op.execute("ALTER TABLE holdfast.stream DROP COLUMN acts_for")
    op.execute("DROP TYPE holdfast.suppressed_cause")
    op.execute("ALTER TYPE holdfast.quarantine_reason RENAME TO quarantine_reason_with_future")
    op.execute(f"CREATE TYPE holdfast.quarantine_reason AS ENUM ({_REASONS_BEFORE})")
    # The version before has no word of its own for such a row; it says what it is not.
    op.execute("""
        ALTER TABLE holdfast.quarantine ALTER COLUMN reason TYPE holdfast.quarantine_reason
        USING (CASE reason::text WHEN 'future_dated' THEN 'bad_data' ELSE reason::text END)
            ::holdfast.quarantine_reason
    """)
    op.execute("DROP TYPE holdfast.quarantine_reason_with_future")


def _ensure_partitions(parents: str) -> str:
    """Return the function of revision 0021 for these tables."""
    return f"""
        CREATE OR REPLACE FUNCTION holdfast.ensure_partitions(days_ahead integer DEFAULT 7)
        RETURNS integer
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            parent  text;
            day     date;
            name    text;
            created integer := 0;
        BEGIN
            IF days_ahead NOT BETWEEN 0 AND 366 THEN
                RAISE EXCEPTION 'days_ahead must be 0 to 366, not %', days_ahead;
            END IF;
            -- One maker at a time: two that attach the same day would fail, not wait.
            PERFORM pg_advisory_xact_lock(hashtext('holdfast.ensure_partitions'));
            FOREACH parent IN ARRAY ARRAY[{parents}] LOOP
                FOR ahead IN -1 .. days_ahead LOOP
                    day := (clock_timestamp() AT TIME ZONE 'UTC')::date + ahead;
                    name := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
                    IF to_regclass(format('holdfast.%I', name)) IS NULL THEN
                        EXECUTE format(
                            'CREATE TABLE holdfast.%I (LIKE holdfast.%I'
                            ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS) %s', name, parent,
                            CASE parent WHEN 'entry' THEN
                                'WITH (autovacuum_vacuum_insert_scale_factor = 0,'
                                ' autovacuum_vacuum_insert_threshold = 20000)' END);
                        EXECUTE format(
                            'ALTER TABLE holdfast.%I ATTACH PARTITION holdfast.%I'
                            ' FOR VALUES FROM (%L) TO (%L)', parent, name,
                            to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00',
                            to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
                        created := created + 1;
                    END IF;
                END LOOP;
            END LOOP;
            RETURN created;
        END $$
    """


def _days_older_than(parents: str) -> str:
    """Return the function of revision 0012 for these tables."""
    return f"""
        CREATE OR REPLACE FUNCTION holdfast.days_older_than(days integer)
        RETURNS TABLE (parent text, day date)
        LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            -- From one on, so that yesterday stays: a batch of its end may still be written.
            IF days IS NULL OR days NOT BETWEEN 1 AND 36500 THEN
                RAISE EXCEPTION 'days must be 1 to 36500, not %', days;
            END IF;
            RETURN QUERY
                SELECT p.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD')
                FROM pg_inherits i
                JOIN pg_class c ON c.oid = i.inhrelid
                JOIN pg_class p ON p.oid = i.inhparent
                WHERE p.relnamespace = 'holdfast'::regnamespace
                    AND p.relname IN ({parents})
                    AND c.relname ~ ('^' || p.relname || '_[0-9]{{8}}$')
                    AND to_date(right(c.relname, 8), 'YYYYMMDD')
                        < (clock_timestamp() AT TIME ZONE 'UTC')::date - days
                -- Attempts last: they tell what became of entries.
                ORDER BY p.relname = 'attempt', p.relname, c.relname;
        END $$
    """


_OF_SUPPRESSED = """
            -- Nothing of it is sent, so nothing of it waits.
            IF of_parent = 'suppressed' THEN
                waiting := 0; unrouted := 0; dead_letters := 0; abandoned := 0; endpoints := '{}';
                RETURN;
            END IF;
"""


def _undelivered_in(first: str) -> str:
    """Return the function of revision 0012, with what it does first."""
    body = _UNDELIVERED_IN.replace("{first}", first)
    return f"CREATE OR REPLACE FUNCTION holdfast.undelivered_in{body}"


_UNDELIVERED_IN = """(
        of_parent text, of_day date,
        OUT waiting bigint, OUT unrouted bigint, OUT dead_letters bigint, OUT abandoned bigint,
        OUT endpoints text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    -- A session that reads lanes by index alone still gets a plan for a whole day.
    SET enable_seqscan = on SET enable_hashjoin = on SET enable_mergejoin = on AS $$
    DECLARE
        day_start timestamptz := of_day::timestamp AT TIME ZONE 'UTC';
        day_end   timestamptz := (of_day + 1)::timestamp AT TIME ZONE 'UTC';
        dead      text[];
    BEGIN
{first}        IF of_parent = 'entry' THEN
            -- Each statement sees a later moment. A batch is routed before its entries wait, and
            -- they wait before they are dead: in this order nothing is between two counts.
            SELECT coalesce(sum(b.entry_count), 0) INTO unrouted
            FROM holdfast.batch b
            WHERE b.routed_at IS NULL AND b.written_at >= day_start AND b.written_at < day_end;
            EXECUTE format($entry$
                SELECT count(*) FILTER (WHERE p.state <> 'disabled'),
                    count(*) FILTER (WHERE p.state = 'disabled'),
                    array_agg(DISTINCT p.name) FILTER (WHERE p.state <> 'disabled')
                FROM holdfast.%I e
                JOIN holdfast.endpoint p ON (p.types = '{}' OR e.type = ANY (p.types))
                    AND (p.starts_at IS NULL OR e.created_at >= p.starts_at)
                LEFT JOIN holdfast.lane l
                    ON l.endpoint_id = p.id AND l.subject_id = e.subject_id
                WHERE coalesce(l.delivered_sequence, 0) < e.sequence
                    AND NOT EXISTS (SELECT FROM holdfast.batch b
                        WHERE b.batch_no = e.batch_no AND b.routed_at IS NULL)
                $entry$, format('entry_%s', to_char(of_day, 'YYYYMMDD')))
            INTO waiting, abandoned, endpoints;
            SELECT count(*), array_agg(DISTINCT p.name) INTO dead_letters, dead
            FROM holdfast.dead_letter d
            JOIN holdfast.endpoint p ON p.id = d.endpoint_id AND p.state <> 'disabled'
            WHERE d.resolution IS NULL AND d.created_at >= day_start AND d.created_at < day_end;
        ELSE
            -- What was tried of an entry counts as long as it is to be tried again.
            EXECUTE format($attempt$
                SELECT count(*) FILTER (WHERE p.state <> 'disabled'),
                    count(*) FILTER (WHERE p.state = 'disabled'),
                    array_agg(DISTINCT p.name) FILTER (WHERE p.state <> 'disabled')
                FROM holdfast.%I a
                JOIN holdfast.endpoint p ON p.id = a.endpoint_id
                JOIN holdfast.lane l
                    ON l.endpoint_id = a.endpoint_id AND l.subject_id = a.subject_id
                WHERE l.delivered_sequence < a.sequence
                $attempt$, format('attempt_%s', to_char(of_day, 'YYYYMMDD')))
            INTO waiting, abandoned, endpoints;
            unrouted := 0;
            EXECUTE format($dead$
                SELECT count(DISTINCT d.id), array_agg(DISTINCT p.name)
                FROM holdfast.%I a
                JOIN holdfast.dead_letter d USING (endpoint_id, subject_id, sequence)
                JOIN holdfast.endpoint p ON p.id = d.endpoint_id AND p.state <> 'disabled'
                WHERE d.resolution IS NULL
                $dead$, format('attempt_%s', to_char(of_day, 'YYYYMMDD')))
            INTO dead_letters, dead;
        END IF;
        endpoints := ARRAY(
            SELECT DISTINCT unnest(coalesce(endpoints, '{}') || coalesce(dead, '{}')) ORDER BY 1);
    END $$
"""
