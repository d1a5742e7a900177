"""Daily partitions of entry and attempt, created ahead by a function that the services can call.

The function runs as its owner, so that services do not need the privilege to create tables. A
partition is created as a table and then attached, which blocks writers only for a catalogue update;
CREATE TABLE ... PARTITION OF would take ACCESS EXCLUSIVE on the parent.
"""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION holdfast.ensure_partitions(days_ahead integer DEFAULT 7)
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
            FOREACH parent IN ARRAY ARRAY['entry', 'attempt'] LOOP
                FOR ahead IN -1 .. days_ahead LOOP
                    day := (clock_timestamp() AT TIME ZONE 'UTC')::date + ahead;
                    name := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
                    IF to_regclass(format('holdfast.%I', name)) IS NULL THEN
                        EXECUTE format(
                            'CREATE TABLE holdfast.%I (LIKE holdfast.%I'
                            ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name, parent);
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
    """)
    op.execute("REVOKE ALL ON FUNCTION holdfast.ensure_partitions(integer) FROM PUBLIC")
    op.execute("SELECT holdfast.ensure_partitions()")


def downgrade() -> None:
    op.execute("DROP FUNCTION holdfast.ensure_partitions(integer)")
