"""Serializes sessions that drop days: each waits at most two seconds for the one before it.

If they only tried the lock, two of them could each find the other's lock at the same day, and both
would leave it to their next run.
"""

from alembic import op

revision = "0017"
down_revision = "0016"

PRUNE_DAY = """
    CREATE OR REPLACE FUNCTION holdfast.prune_day(
        of_parent text, of_day date, older_than integer, dry_run boolean,
        by_actor text, for_reason text,
        OUT outcome text, OUT row_count bigint, OUT bytes bigint, OUT waiting bigint,
        OUT unrouted bigint, OUT dead_letters bigint, OUT abandoned bigint, OUT endpoints text[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '2s' AS $$
    DECLARE
        name  text := format('%%s_%%s', of_parent, to_char(of_day, 'YYYYMMDD'));
        wants text[];
    BEGIN
        -- Each statement must see what was committed while the one before it waited.
        IF current_setting('transaction_isolation') <> 'read committed' THEN
            RAISE EXCEPTION 'prune_day needs read committed, not %%',
                current_setting('transaction_isolation');
        END IF;
        -- Before anything is looked at: what the holder of it dropped is gone by then.
        %(turn)s
        IF NOT EXISTS (SELECT FROM holdfast.days_older_than(older_than) AS old
                WHERE old.parent = of_parent AND old.day = of_day) THEN
            outcome := 'gone';
            RETURN;
        END IF;
        wants := ARRAY(SELECT format('%%s %%s %%s %%s', id, state, types, starts_at)
            FROM holdfast.endpoint ORDER BY id);
        -- Nobody writes in an old day; a sink that has stood still since then might.
        EXECUTE format('LOCK TABLE holdfast.%%I IN SHARE MODE', name);
        SELECT * INTO waiting, unrouted, dead_letters, abandoned, endpoints
        FROM holdfast.undelivered_in(of_parent, of_day);
        EXECUTE format('SELECT count(*) FROM holdfast.%%I', name) INTO row_count;
        bytes := pg_total_relation_size(format('holdfast.%%I', name)::regclass);
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
        EXECUTE format('LOCK TABLE ONLY holdfast.%%I IN ACCESS EXCLUSIVE MODE', of_parent);
        IF wants IS DISTINCT FROM ARRAY(
                SELECT format('%%s %%s %%s %%s', id, state, types, starts_at)
                FROM holdfast.endpoint ORDER BY id) THEN
            -- An endpoint came, or was resumed, that may want what was not wanted before.
            RAISE lock_not_available;
        END IF;
        EXECUTE format('DROP TABLE holdfast.%%I', name);
        outcome := 'dropped';
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        outcome := 'busy';
    END $$
"""

# `lock_timeout` ends the wait too: the day is 'busy' then.
WAIT = "PERFORM pg_advisory_xact_lock(hashtext('holdfast.prune_day'));"
TAKE = """IF NOT pg_try_advisory_xact_lock(hashtext('holdfast.prune_day')) THEN
            outcome := 'busy';
            RETURN;
        END IF;"""


def upgrade() -> None:
    op.execute(PRUNE_DAY % {"turn": WAIT})


def downgrade() -> None:
    op.execute(PRUNE_DAY % {"turn": TAKE})
