"""The hold of one subject at one endpoint: since when, until when, by whom and why.

A trigger keeps what is due to the end of the hold, so claims need not know of it, and dispatchers
of older code keep to it too; their replays do not.

Step: expand. Code from before ignores the columns.
Locks: lane, ACCESS EXCLUSIVE, for nullable columns and a trigger; SHARE, for as long as it takes to
read the table once for an index that stays nearly empty.
"""

from alembic import op

revision = "0037"
down_revision = "0036"

_COLUMNS = "on_hold_since, on_hold_until, on_hold_by, on_hold_reason"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE holdfast.lane
            ADD COLUMN on_hold_since timestamptz,
            ADD COLUMN on_hold_until timestamptz,
            ADD COLUMN on_hold_by text,
            ADD COLUMN on_hold_reason text,
            ADD CONSTRAINT ck_lane_on_hold CHECK (
                num_nulls(on_hold_since, on_hold_until, on_hold_by, on_hold_reason) IN (0, 4)
            ) NOT VALID
    """)
    op.execute("ALTER TABLE holdfast.lane VALIDATE CONSTRAINT ck_lane_on_hold")
    op.execute("""
        CREATE INDEX ix_lane_on_hold ON holdfast.lane (endpoint_id, subject_id)
        WHERE on_hold_until IS NOT NULL
    """)
    # A time that this update sets counts from now; one that was stored, from the end of the hold
    # under which it was stored. The two ends are now where there is no hold.
    op.execute("""
        CREATE FUNCTION holdfast.keep_hold() RETURNS trigger
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            old_end timestamptz := greatest(OLD.on_hold_until, now());
            new_end timestamptz := greatest(NEW.on_hold_until, now());
            due_from timestamptz := CASE
                WHEN NEW.due_at IS DISTINCT FROM OLD.due_at THEN now() ELSE old_end END;
            tried_from timestamptz := CASE
                WHEN OLD.tried_since_us IS NULL
                    OR NEW.delivered_sequence <> OLD.delivered_sequence
                THEN now() ELSE old_end END;
        BEGIN
            IF NEW.due_at IS NOT NULL AND due_from <> new_end THEN
                NEW.due_at := new_end + greatest(
                    0, (extract(epoch FROM NEW.due_at - due_from) * 1000000)::bigint
                ) * interval '1 microsecond';
            END IF;
            NEW.tried_since_us := NEW.tried_since_us
                + (extract(epoch FROM new_end - tried_from) * 1000000)::bigint;
            IF NEW.on_hold_until <= now() THEN
                NEW.on_hold_since := NULL;
                NEW.on_hold_until := NULL;
                NEW.on_hold_by := NULL;
                NEW.on_hold_reason := NULL;
            END IF;
            RETURN NEW;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER lane_on_hold BEFORE UPDATE ON holdfast.lane
        FOR EACH ROW WHEN (OLD.on_hold_until IS NOT NULL OR NEW.on_hold_until IS NOT NULL)
        EXECUTE FUNCTION holdfast.keep_hold()
    """)
    op.execute(f"GRANT UPDATE ({_COLUMNS}) ON holdfast.lane TO holdfast_operator")


# What is on hold would be sent: only a person ends a hold.
HELD = """
    DO $do$
    DECLARE
        held bigint;
    BEGIN
        LOCK TABLE holdfast.lane IN SHARE ROW EXCLUSIVE MODE;
        SELECT count(*) INTO held FROM holdfast.lane WHERE on_hold_until > now();
        IF held > 0 THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                '%s on hold, which the older revision would send: resume first (`holdfast subject'
                ' list --held on_hold` names them)',
                CASE held WHEN 1 THEN '1 subject is' ELSE held || ' subjects are' END);
        END IF;
    END $do$
"""


def downgrade() -> None:
    op.execute(HELD)
    op.execute("DROP TRIGGER lane_on_hold ON holdfast.lane")
    op.execute("DROP FUNCTION holdfast.keep_hold()")
    op.execute("""
        ALTER TABLE holdfast.lane
            DROP COLUMN on_hold_since, DROP COLUMN on_hold_until,
            DROP COLUMN on_hold_by, DROP COLUMN on_hold_reason
    """)
