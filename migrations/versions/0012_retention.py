"""Dropping whole old days, but none that contains anything undelivered.

The function runs as its owner, so that services do not need the privilege to drop tables. It first
scans the day, which blocks nobody, and locks out writers only for the drop. It waits at most two
seconds for the lock, because all other sessions queue behind the wait.
"""

from alembic import op

revision = "0012"
down_revision = "0011"

FUNCTIONS = (
    "days_older_than(integer)",
    "undelivered_in(text, date)",
    "prune_day(text, date, integer, boolean, text, text)",
)

DAYS_OLDER_THAN = """
    CREATE FUNCTION holdfast.days_older_than(days integer)
    RETURNS TABLE (parent text, day date)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        -- From one on, so that yesterday stays: a batch of its last second may still be written.
        IF days IS NULL OR days NOT BETWEEN 1 AND 36500 THEN
            RAISE EXCEPTION 'days must be 1 to 36500, not %', days;
        END IF;
        RETURN QUERY
            SELECT p.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD')
            FROM pg_inherits i
            JOIN pg_class c ON c.oid = i.inhrelid
            JOIN pg_class p ON p.oid = i.inhparent
            WHERE p.relnamespace = 'holdfast'::regnamespace
                AND p.relname IN ('entry', 'attempt')
                AND c.relname ~ ('^' || p.relname || '_[0-9]{8}$')
                AND to_date(right(c.relname, 8), 'YYYYMMDD')
                    < (clock_timestamp() AT TIME ZONE 'UTC')::date - days
            -- Attempts last: they tell what became of entries.
            ORDER BY p.relname DESC, c.relname;
    END $$
"""

# An entry is undelivered if an endpoint wants it and no lane of that endpoint has passed it.
UNDELIVERED_IN = """
    CREATE FUNCTION holdfast.undelivered_in(
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
        IF of_parent = 'entry' THEN
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

PRUNE_DAY = """
    CREATE FUNCTION holdfast.prune_day(
        of_parent text, of_day date, older_than integer, dry_run boolean,
        by_actor text, for_reason text,
        OUT outcome text, OUT row_count bigint, OUT bytes bigint, OUT waiting bigint,
        OUT unrouted bigint, OUT dead_letters bigint, OUT abandoned bigint, OUT endpoints text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
    DECLARE
        name  text := format('%s_%s', of_parent, to_char(of_day, 'YYYYMMDD'));
        wants text[];
    BEGIN
        -- Each statement must see what was committed while the one before it waited.
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'prune_day needs read committed, not %',
                current_setting('transaction_isolation');
        END IF;
        -- Before anything is looked at: what the holder of it dropped is gone by then.
        IF NOT pg_try_advisory_xact_lock(hashtext('holdfast.prune_day')) THEN
            outcome := 'busy';
            RETURN;
        END IF;
        IF NOT EXISTS (SELECT FROM holdfast.days_older_than(older_than) AS old
                WHERE old.parent = of_parent AND old.day = of_day) THEN
            outcome := 'gone';
            RETURN;
        END IF;
        wants := ARRAY(SELECT format('%s %s %s %s', id, state, types, starts_at)
            FROM holdfast.endpoint ORDER BY id);
        -- Nobody writes in an old day; a sink that has stood still since then might.
        EXECUTE format('LOCK TABLE holdfast.%I IN SHARE MODE', name);
        SELECT * INTO waiting, unrouted, dead_letters, abandoned, endpoints
        FROM holdfast.undelivered_in(of_parent, of_day);
        EXECUTE format('SELECT count(*) FROM holdfast.%I', name) INTO row_count;
        bytes := pg_total_relation_size(format('holdfast.%I', name)::regclass);
        IF waiting + unrouted + dead_letters > 0 THEN
            outcome := 'refused';
            RETURN;
        END IF;
        IF dry_run THEN
            outcome := 'droppable';
            RETURN;
        END IF;
        INSERT INTO holdfast.operator_action (actor, action, target, reason, detail)
        VALUES (by_actor, 'partition.drop', name, for_reason, jsonb_build_object(
            'rows', row_count, 'bytes', bytes, 'older_than_days', older_than,
            'undelivered_to_disabled_endpoints', abandoned));
        -- From here to COMMIT nobody reads or writes the parent.
        EXECUTE format('LOCK TABLE ONLY holdfast.%I IN ACCESS EXCLUSIVE MODE', of_parent);
        IF wants IS DISTINCT FROM ARRAY(SELECT format('%s %s %s %s', id, state, types, starts_at)
                FROM holdfast.endpoint ORDER BY id) THEN
            -- An endpoint came, or was resumed, that may want what was not wanted before.
            RAISE lock_not_available;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%I', name);
        outcome := 'dropped';
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        outcome := 'busy';
    END $$
"""


def upgrade() -> None:
    for function in (DAYS_OLDER_THAN, UNDELIVERED_IN, PRUNE_DAY):
        op.execute(function)
    for signature in FUNCTIONS:
        op.execute(f"REVOKE ALL ON FUNCTION holdfast.{signature} FROM PUBLIC")
    # It determines itself what is undelivered, so a caller cannot drop too much.
    for signature in ("days_older_than(integer)", FUNCTIONS[-1]):
        op.execute(
            f"GRANT EXECUTE ON FUNCTION holdfast.{signature}"
            " TO holdfast_janitor, holdfast_dispatcher"
        )


def downgrade() -> None:
    for signature in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION holdfast.{signature}")
