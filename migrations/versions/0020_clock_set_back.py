"""Allows pausing an endpoint after the database's clock was set back while it was stalled.

A stall may then seem to end before it began. It counts as zero, never as negative: a CHECK refuses
a negative running clock, and with it `endpoint pause`.
"""

from alembic import op

revision = "0020"
down_revision = "0019"

_COUNTED = "(extract(epoch FROM stalled_until - stalled_since) * 1000000)::bigint"


def _function(counted: str, held_until: str) -> str:
    return f"""
    CREATE OR REPLACE FUNCTION holdfast.endpoint_paced() RETURNS trigger
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
                    THEN {counted}
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
                    WHEN breaker NOT IN ('open', 'half_open') AND held_until > now()
                    THEN {held_until}
                    END
            WHERE endpoint_id = NEW.id;
        END IF;
        RETURN NULL;
    END $$
    """


def upgrade() -> None:
    op.execute(_function(f"greatest(0, {_COUNTED})", "greatest(held_until, stalled_since)"))


def downgrade() -> None:
    op.execute(_function(_COUNTED, "held_until"))
