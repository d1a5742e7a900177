"""An endpoint begins behind the batches that were there when it was added, whatever the clock says.

`starts_at` was compared with the moment of an entry, so that what was decided while the database's
clock was behind it was for nobody. `starts_after` is the last batch number that was there when the
endpoint was added, `starts_late` the numbers below it that were not: taken by a sink that had not
committed yet. A batch is for the endpoint if its number is above the one or among the others: if it
was committed after the endpoint was added. `starts_at` stays for people.

Of an endpoint that is there already, the first batch that is certainly its own is the first one
written at its start or later. A clock that was set back near the start leaves that open: what was
written after the clock had come within ten minutes of the start and had then gone back is taken as
its own, because nothing may be lost. A start in the future says by itself that the clock was set
back. What was routed stays as it is; `holdfast check` names what no lane came to, and
`holdfast endpoint backfill` makes those lanes.
"""

from alembic import op

revision = "0027"
down_revision = "0026"

_BY_TIME = "(p.starts_at IS NULL OR e.created_at >= p.starts_at)"
_BY_BATCH = "(p.starts_after IS NULL OR e.batch_no > p.starts_after OR e.batch_no <@ p.starts_late)"

START = """
    CREATE FUNCTION holdfast.endpoint_start() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF NEW.starts_at IS NULL THEN
            NEW.starts_after := NULL;
            NEW.starts_late := '{}';
        ELSIF NEW.starts_after IS NULL THEN
            -- Routing is kept out (route_lock.sql): what is committed from this snapshot on is
            -- routed by somebody who sees the endpoint.
            SELECT coalesce(max(b.batch_no), 0),
                coalesce(range_agg(int8range(b.before + 1, b.batch_no))
                    FILTER (WHERE b.batch_no > b.before + 1), '{}')
            INTO NEW.starts_after, NEW.starts_late
            FROM (SELECT batch_no, lag(batch_no, 1, 0::bigint) OVER (ORDER BY batch_no) AS before
                FROM holdfast.batch) b;
        END IF;
        RETURN NEW;
    END $$
"""

# Everything is read before readers are locked out. Writers are kept out all the time: an endpoint
# that is added meanwhile would have no mark.
COLUMNS = """
    DO $do$
    DECLARE
        ids   integer[];
        marks bigint[];
    BEGIN
        LOCK TABLE holdfast.endpoint IN SHARE ROW EXCLUSIVE MODE;
        WITH written AS MATERIALIZED (
            SELECT batch_no, written_at, max(written_at) OVER (ORDER BY batch_no) AS reached
            FROM holdfast.batch
        ),
        started AS (
            SELECT id, CASE WHEN starts_at > now() THEN least(starts_at, created_at)
                            ELSE starts_at END AS at
            FROM holdfast.endpoint
            WHERE starts_at IS NOT NULL
        )
        SELECT array_agg(s.id), array_agg(coalesce(
            (SELECT min(w.batch_no) - 1 FROM written w
             WHERE w.reached >= s.at
                OR (s.at > now() OR w.reached >= s.at - interval '10 minutes')
                   AND w.written_at < w.reached - interval '1 minute'),
            (SELECT max(w.batch_no) FROM written w), 0))
        INTO ids, marks
        FROM started s;
        ALTER TABLE holdfast.endpoint
            ADD COLUMN starts_after bigint,
            ADD COLUMN starts_late int8multirange NOT NULL DEFAULT '{}';
        UPDATE holdfast.endpoint p SET starts_after = f.mark
        FROM unnest(ids, marks) AS f (id, mark) WHERE f.id = p.id;
        ALTER TABLE holdfast.endpoint ADD CONSTRAINT ck_endpoint_start
            CHECK ((starts_at IS NULL) = (starts_after IS NULL));
    END $do$
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    op.execute(START)
    op.execute("REVOKE ALL ON FUNCTION holdfast.endpoint_start() FROM PUBLIC")
    op.execute("""
        CREATE TRIGGER endpoint_start BEFORE INSERT OR UPDATE OF starts_at ON holdfast.endpoint
            FOR EACH ROW EXECUTE FUNCTION holdfast.endpoint_start()
    """)
    _replace_in_undelivered(_BY_TIME, _BY_BATCH)


def downgrade() -> None:
    _replace_in_undelivered(_BY_BATCH, _BY_TIME)
    op.execute("DROP TRIGGER endpoint_start ON holdfast.endpoint")
    op.execute("DROP FUNCTION holdfast.endpoint_start()")
    op.execute("""
        ALTER TABLE holdfast.endpoint DROP CONSTRAINT ck_endpoint_start,
            DROP COLUMN starts_after, DROP COLUMN starts_late
    """)


def _replace_in_undelivered(old: str, new: str) -> None:
    """Change one condition of `undelivered_in`, whatever else a revision changed in it."""
    op.execute(f"""
        DO $do$
        DECLARE
            body text := pg_get_functiondef('holdfast.undelivered_in(text, date)'::regprocedure);
        BEGIN
            ASSERT position('{old}' IN body) > 0;
            EXECUTE replace(body, '{old}', '{new}');
        END $do$
    """)
