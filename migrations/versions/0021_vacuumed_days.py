"""Vacuums days of entries after a number of inserted rows, not after a share of the day.

Routing finds a batch by a BRIN index, which does not cover pages filled since the last VACUUM, so
it reads all of them. With the default of a fifth that is hours of a day; with a fixed number it is
the inserts of a minute or two.
"""

from alembic import op

revision = "0021"
down_revision = "0020"

_EVERY = "autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 20000"
_DEFAULT = "autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold"


def upgrade() -> None:
    op.execute(_ensure_partitions(f"WITH ({_EVERY})"))
    op.execute(_of_days(f"SET ({_EVERY})"))


def downgrade() -> None:
    op.execute(_ensure_partitions(""))
    op.execute(_of_days(f"RESET ({_DEFAULT})"))


def _of_days(change: str) -> str:
    """Return what changes every day of entries that is there, for which writers need not wait."""
    return f"""
        DO $$
        DECLARE
            day regclass;
        BEGIN
            FOR day IN
                SELECT inhrelid FROM pg_inherits WHERE inhparent = 'holdfast.entry'::regclass
            LOOP
                EXECUTE format('ALTER TABLE %s {change}', day);
            END LOOP;
        END $$
    """


def _ensure_partitions(of_entries: str) -> str:
    """Return the function of revision 0006, with what is said of the days of entries alone."""
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
            FOREACH parent IN ARRAY ARRAY['entry', 'attempt'] LOOP
                FOR ahead IN -1 .. days_ahead LOOP
                    day := (clock_timestamp() AT TIME ZONE 'UTC')::date + ahead;
                    name := format('%s_%s', parent, to_char(day, 'YYYYMMDD'));
                    IF to_regclass(format('holdfast.%I', name)) IS NULL THEN
                        EXECUTE format(
                            'CREATE TABLE holdfast.%I (LIKE holdfast.%I'
                            ' INCLUDING DEFAULTS INCLUDING CONSTRAINTS) %s', name, parent,
                            CASE parent WHEN 'entry' THEN '{of_entries}' END);
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
