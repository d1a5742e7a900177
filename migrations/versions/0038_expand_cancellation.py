"""Entries that a person cancelled before they left, at one endpoint or at all.

A lane has the cancelled entries that are ahead of it. A trigger keeps `last_sequence`, up to which
claims take entries, before the first of them, and moves the lane past each when it is reached. So
no statement of delivery knows of them, and dispatchers of older code keep to it too.

Step: expand. Code from before ignores the table and the columns.
Locks: lane, ACCESS EXCLUSIVE, for nullable columns and triggers; replay_item, SHARE ROW EXCLUSIVE,
for a trigger.
"""

from alembic import op

revision = "0038"
down_revision = "0037"

_COLUMNS = "cancelled, routed_sequence"


# `ended`: whoever changes the lane has no more to deliver up to where it is kept.
LANE_FUNCTION = """
    CREATE FUNCTION holdfast.pass_cancelled() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        ended boolean := NEW.delivered_sequence >= NEW.last_sequence;
        routed bigint := greatest(NEW.last_sequence, OLD.routed_sequence);
        ahead bigint[] := ARRAY(
            SELECT DISTINCT c FROM unnest(NEW.cancelled) AS c
            WHERE c > NEW.delivered_sequence ORDER BY c);
        passed boolean := false;
    BEGIN
        WHILE ahead[1] = NEW.delivered_sequence + 1 AND ahead[1] <= routed LOOP
            NEW.delivered_sequence := ahead[1];
            ahead := ahead[2:];
            passed := true;
        END LOOP;
        NEW.last_sequence := least(routed, ahead[1] - 1);
        NEW.cancelled := nullif(ahead, '{}');
        NEW.routed_sequence := CASE WHEN ahead <> '{}' THEN routed END;
        IF passed THEN
            NEW.attempt := 0;
            NEW.rescued := 0;
            NEW.tried_since_us := NULL;
        END IF;
        IF NEW.token IS NULL AND NEW.delivered_sequence = NEW.last_sequence THEN
            NEW.due_at := NULL;
        ELSIF NEW.token IS NULL AND ended THEN
            NEW.due_at := coalesce(NEW.due_at, now());
        END IF;
        RETURN NEW;
    END $$
"""

NEW_LANES_FUNCTION = """
    CREATE FUNCTION holdfast.keep_cancelled() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        -- Routers have it already. Whoever cancels excludes it, and then sees these lanes.
        PERFORM pg_advisory_xact_lock_shared(hashtext('holdfast.route'));
        IF NOT EXISTS (SELECT FROM holdfast.cancellation) THEN
            RETURN NULL;
        END IF;
        UPDATE holdfast.lane
        SET cancelled = begun.cancelled
        FROM (
            SELECT a.endpoint_id, a.subject_id, ARRAY(
                SELECT c.sequence FROM holdfast.cancellation c
                WHERE c.subject_id = a.subject_id AND c.sequence > a.delivered_sequence
                  AND coalesce(c.endpoint_id, a.endpoint_id) = a.endpoint_id
            ) AS cancelled
            FROM added a
            OFFSET 0
        ) begun
        WHERE begun.cancelled <> '{}' AND lane.endpoint_id = begun.endpoint_id
          AND lane.subject_id = begun.subject_id;
        RETURN NULL;
    END $$
"""

ITEMS_FUNCTION = """
    CREATE FUNCTION holdfast.refuse_cancelled() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    BEGIN
        IF NOT EXISTS (SELECT FROM holdfast.cancellation) THEN
            RETURN NULL;
        END IF;
        UPDATE holdfast.replay_item i
        SET settled_at = now(), detail = 'not sent: it is cancelled'
        FROM added a
        WHERE a.kind = 'resend' AND i.replay_id = a.replay_id
          AND i.endpoint_id = a.endpoint_id AND i.subject_id = a.subject_id
          AND i.sequence = a.sequence
          AND EXISTS (
              SELECT FROM holdfast.cancellation c
              WHERE c.subject_id = a.subject_id AND c.sequence = a.sequence
                AND coalesce(c.endpoint_id, a.endpoint_id) = a.endpoint_id);
        RETURN NULL;
    END $$
"""


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.cancellation (
            id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_cancellation PRIMARY KEY,
            endpoint_id integer CONSTRAINT fk_cancellation_endpoint
                REFERENCES holdfast.endpoint (id),
            subject_id bigint NOT NULL,
            sequence bigint NOT NULL,
            key uuid NOT NULL,
            cancelled_at timestamptz NOT NULL DEFAULT now(),
            cancelled_by text NOT NULL,
            reason text NOT NULL
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX uq_cancellation ON holdfast.cancellation
            (subject_id, sequence, endpoint_id)
    """)
    op.execute("""
        CREATE UNIQUE INDEX uq_cancellation_everywhere ON holdfast.cancellation
            (subject_id, sequence) WHERE endpoint_id IS NULL
    """)
    op.execute("CREATE INDEX ix_cancellation_key ON holdfast.cancellation (key)")
    op.execute("""
        ALTER TABLE holdfast.lane
            ADD COLUMN cancelled bigint[],
            ADD COLUMN routed_sequence bigint,
            ADD CONSTRAINT ck_lane_cancelled CHECK (
                (cancelled IS NULL) = (routed_sequence IS NULL)
                AND (cancelled IS NULL OR cancelled[1] > last_sequence)
                AND coalesce(routed_sequence >= last_sequence, true)
            ) NOT VALID
    """)
    op.execute("ALTER TABLE holdfast.lane VALIDATE CONSTRAINT ck_lane_cancelled")
    op.execute(LANE_FUNCTION)
    # Before `lane_on_hold`, by their names, which keeps what becomes due to the end of a hold.
    op.execute("""
        CREATE TRIGGER lane_cancelled BEFORE UPDATE ON holdfast.lane
        FOR EACH ROW WHEN (OLD.cancelled IS NOT NULL OR NEW.cancelled IS NOT NULL)
        EXECUTE FUNCTION holdfast.pass_cancelled()
    """)
    op.execute(NEW_LANES_FUNCTION)
    op.execute("""
        CREATE TRIGGER lane_keeps_cancelled AFTER INSERT ON holdfast.lane
            REFERENCING NEW TABLE AS added
            FOR EACH STATEMENT EXECUTE FUNCTION holdfast.keep_cancelled()
    """)
    op.execute(ITEMS_FUNCTION)
    # Plans leave them out; this is for those of older code.
    op.execute("""
        CREATE TRIGGER replay_item_cancelled AFTER INSERT ON holdfast.replay_item
            REFERENCING NEW TABLE AS added
            FOR EACH STATEMENT EXECUTE FUNCTION holdfast.refuse_cancelled()
    """)
    for function in ("pass_cancelled", "keep_cancelled", "refuse_cancelled"):
        op.execute(f"REVOKE ALL ON FUNCTION holdfast.{function}() FROM PUBLIC")
    op.execute("GRANT SELECT, INSERT ON holdfast.cancellation TO holdfast_operator")
    op.execute("GRANT SELECT ON holdfast.cancellation TO holdfast_reader")
    op.execute(f"GRANT UPDATE ({_COLUMNS}) ON holdfast.lane TO holdfast_operator")


# What was cancelled and is ahead of a lane, or not routed yet, would be sent.
AHEAD = """
    DO $do$
    DECLARE
        ahead bigint;
    BEGIN
        LOCK TABLE holdfast.cancellation, holdfast.lane IN SHARE ROW EXCLUSIVE MODE;
        SELECT count(*) INTO ahead FROM holdfast.cancellation c
        WHERE EXISTS (
            SELECT FROM holdfast.lane l
            WHERE l.subject_id = c.subject_id AND c.sequence = ANY (l.cancelled)
              AND l.endpoint_id = coalesce(c.endpoint_id, l.endpoint_id)
        ) OR EXISTS (
            SELECT FROM holdfast.entry e
            JOIN holdfast.batch b USING (batch_no)
            WHERE e.subject_id = c.subject_id AND e.sequence = c.sequence AND b.routed_at IS NULL
        );
        IF ahead > 0 THEN
            RAISE object_not_in_prerequisite_state USING MESSAGE = format(
                '%s cancelled and not passed yet, so the older revision would send them: deliver'
                ' what is before them first (`holdfast why KEY`;'
                ' `holdfast audit list --action entry.cancel` has the keys)',
                CASE ahead WHEN 1 THEN '1 entry is' ELSE ahead || ' entries are' END);
        END IF;
    END $do$
"""


def downgrade() -> None:
    op.execute(AHEAD)
    op.execute("DROP TRIGGER replay_item_cancelled ON holdfast.replay_item")
    op.execute("DROP TRIGGER lane_keeps_cancelled ON holdfast.lane")
    op.execute("DROP TRIGGER lane_cancelled ON holdfast.lane")
    for function in ("refuse_cancelled", "keep_cancelled", "pass_cancelled"):
        op.execute(f"DROP FUNCTION holdfast.{function}()")
    op.execute("ALTER TABLE holdfast.lane DROP COLUMN cancelled, DROP COLUMN routed_sequence")
    op.execute("DROP TABLE holdfast.cancellation")
