"""The pace of an endpoint: its breaker, its rate, and the receiver's Retry-After.

It changes often and an endpoint rarely does, so it has a separate table. A trigger creates the row
of an endpoint and also maintains its running clock, which stops while the endpoint is not active.
"""

from alembic import op

revision = "0014"
down_revision = "0013"

SERVICES = "holdfast_dispatcher, holdfast_operator, holdfast_reader"

PACED = """
    CREATE FUNCTION holdfast.endpoint_paced() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO holdfast.endpoint_pace (endpoint_id, paused, stalled_since)
            VALUES (NEW.id, NEW.state <> 'active', CASE WHEN NEW.state <> 'active' THEN now() END);
        ELSIF NEW.state <> 'active' AND OLD.state = 'active' THEN
            -- A stall that is over by now is counted first; then a new one begins, without an end.
            UPDATE holdfast.endpoint_pace
            SET paused = true,
                stalled_us = stalled_us + CASE WHEN stalled_until <= now()
                    THEN (extract(epoch FROM stalled_until - stalled_since) * 1000000)::bigint
                    ELSE 0 END,
                stalled_since = CASE WHEN stalled_until <= now() THEN now()
                                     ELSE coalesce(stalled_since, now()) END,
                stalled_until = NULL
            WHERE endpoint_id = NEW.id;
        ELSIF NEW.state = 'active' AND OLD.state <> 'active' THEN
            UPDATE holdfast.endpoint_pace
            SET paused = false,
                stalled_us = stalled_us + CASE
                    WHEN breaker IN ('open', 'half_open') OR held_until > now() THEN 0
                    ELSE greatest(0, extract(epoch FROM now() - stalled_since) * 1000000)::bigint
                    END,
                stalled_since = CASE
                    WHEN breaker IN ('open', 'half_open') OR held_until > now() THEN stalled_since
                    END,
                stalled_until = CASE
                    WHEN breaker NOT IN ('open', 'half_open') AND held_until > now() THEN held_until
                    END
            WHERE endpoint_id = NEW.id;
        END IF;
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.endpoint_pace (
            endpoint_id    integer                NOT NULL
                                                  CONSTRAINT pk_endpoint_pace PRIMARY KEY,
            breaker        holdfast.breaker_state NOT NULL DEFAULT 'closed',
            breaker_since  timestamptz            NOT NULL DEFAULT now(),
            breaker_until  timestamptz,
            breaker_reason text,
            failures       integer                NOT NULL DEFAULT 0,
            openings       integer                NOT NULL DEFAULT 0,
            probe          uuid,
            paid_until     timestamptz            NOT NULL DEFAULT now(),
            held_until     timestamptz,
            held_by        text,
            paused         boolean                NOT NULL DEFAULT false,
            stalled_us     bigint                 NOT NULL DEFAULT 0,
            stalled_since  timestamptz,
            stalled_until  timestamptz,
            CONSTRAINT fk_endpoint_pace_endpoint
                FOREIGN KEY (endpoint_id) REFERENCES holdfast.endpoint (id),
            CONSTRAINT ck_endpoint_pace_breaker
                CHECK ((breaker = 'closed') = (breaker_until IS NULL)),
            CONSTRAINT ck_endpoint_pace_probe
                CHECK ((breaker = 'half_open') = (probe IS NOT NULL)),
            CONSTRAINT ck_endpoint_pace_counts
                CHECK (failures >= 0 AND openings >= 0 AND stalled_us >= 0),
            CONSTRAINT ck_endpoint_pace_stall
                CHECK (stalled_until IS NULL OR stalled_since IS NOT NULL)
        ) WITH (
            fillfactor = 50,
            autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 200,
            autovacuum_vacuum_cost_delay = 0
        )
    """)
    op.execute(PACED)
    op.execute("REVOKE ALL ON FUNCTION holdfast.endpoint_paced() FROM PUBLIC")
    op.execute("""
        CREATE TRIGGER endpoint_paced AFTER INSERT OR UPDATE OF state ON holdfast.endpoint
            FOR EACH ROW EXECUTE FUNCTION holdfast.endpoint_paced()
    """)
    op.execute("""
        INSERT INTO holdfast.endpoint_pace (endpoint_id, paused, stalled_since)
        SELECT id, state <> 'active', CASE WHEN state <> 'active' THEN now() END
        FROM holdfast.endpoint
    """)
    op.execute("""
        ALTER TABLE holdfast.endpoint
            DROP COLUMN breaker, DROP COLUMN breaker_failures, DROP COLUMN breaker_until
    """)
    # When the head was first tried, by its endpoint's running clock; null while it was not.
    op.execute("ALTER TABLE holdfast.lane ADD COLUMN tried_since_us bigint")
    op.execute(f"GRANT SELECT ON holdfast.endpoint_pace TO {SERVICES}")
    op.execute("GRANT UPDATE ON holdfast.endpoint_pace TO holdfast_dispatcher")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.lane DROP COLUMN tried_since_us")
    op.execute("""
        ALTER TABLE holdfast.endpoint
            ADD COLUMN breaker          holdfast.breaker_state NOT NULL DEFAULT 'closed',
            ADD COLUMN breaker_failures integer                NOT NULL DEFAULT 0,
            ADD COLUMN breaker_until    timestamptz
    """)
    op.execute("""
        GRANT UPDATE (breaker, breaker_failures, breaker_until)
            ON holdfast.endpoint TO holdfast_dispatcher
    """)
    op.execute("DROP TRIGGER endpoint_paced ON holdfast.endpoint")
    op.execute("DROP FUNCTION holdfast.endpoint_paced()")
    op.execute("DROP TABLE holdfast.endpoint_pace")
