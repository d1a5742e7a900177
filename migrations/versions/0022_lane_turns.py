"""A key of lanes that stays cheap while a session holds an old snapshot.

Each claim and settlement stores a new row version of a lane. The unique index of lanes had to check
every version that was still kept. An old snapshot keeps all of them: after minutes of load each
delivery cost more than twice as much. Now the key contains a counter (`turn`) that each update
increments, and a table whose rows never change ensures that a lane exists once.
"""

from alembic import op

revision = "0022"
down_revision = "0021"

_PLACE = "endpoint_id, subject_id"
_CHANGED = (
    "delivered_sequence, last_sequence, claimed_sequence, attempt, rescued, priority, due_at,"
    " token, lease_until, head_created_at, tried_since_us, turn"
)
_MAY = "holdfast_dispatcher, holdfast_operator"


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.lane_key (
            endpoint_id integer NOT NULL,
            subject_id  bigint  NOT NULL,
            CONSTRAINT pk_lane_key PRIMARY KEY (endpoint_id, subject_id)
        )
    """)
    op.execute("""
        ALTER TABLE holdfast.lane
            ADD COLUMN turn bigint NOT NULL DEFAULT 0,
            DROP CONSTRAINT pk_lane,
            ADD CONSTRAINT pk_lane PRIMARY KEY (endpoint_id, subject_id, turn)
    """)
    # Behind the lock: a lane that somebody was making before it is there now.
    op.execute(f"INSERT INTO holdfast.lane_key SELECT {_PLACE} FROM holdfast.lane ORDER BY 1, 2")
    # Whoever else is making the lane at this moment is waited for. A key without a lane, as from a
    # restore of one table before the other, would keep it from ever beginning: it is taken over, by
    # one at a time.
    op.execute("""
        CREATE FUNCTION holdfast.lane_begins() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            INSERT INTO holdfast.lane_key VALUES (NEW.endpoint_id, NEW.subject_id)
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN NEW;
            END IF;
            PERFORM FROM holdfast.lane_key k
            WHERE k.endpoint_id = NEW.endpoint_id AND k.subject_id = NEW.subject_id FOR UPDATE;
            PERFORM FROM holdfast.lane l
            WHERE l.endpoint_id = NEW.endpoint_id AND l.subject_id = NEW.subject_id LIMIT 1;
            IF FOUND THEN
                RETURN NULL;
            END IF;
            RETURN NEW;
        END $$
    """)
    op.execute("""
        CREATE FUNCTION holdfast.lane_ends() RETURNS trigger
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            IF TG_OP = 'TRUNCATE' THEN
                DELETE FROM holdfast.lane_key;
            ELSE
                DELETE FROM holdfast.lane_key k USING gone
                WHERE k.endpoint_id = gone.endpoint_id AND k.subject_id = gone.subject_id;
            END IF;
            RETURN NULL;
        END $$
    """)
    for function in ("lane_begins", "lane_ends"):
        op.execute(f"REVOKE ALL ON FUNCTION holdfast.{function}() FROM PUBLIC")
    op.execute("""
        CREATE TRIGGER lane_begins BEFORE INSERT ON holdfast.lane
            FOR EACH ROW EXECUTE FUNCTION holdfast.lane_begins()
    """)
    # Nobody's right but the owner's, who would else make a lane that never begins again.
    op.execute("""
        CREATE TRIGGER lane_deleted AFTER DELETE ON holdfast.lane REFERENCING OLD TABLE AS gone
            FOR EACH STATEMENT EXECUTE FUNCTION holdfast.lane_ends()
    """)
    op.execute("""
        CREATE TRIGGER lane_truncated AFTER TRUNCATE ON holdfast.lane
            FOR EACH STATEMENT EXECUTE FUNCTION holdfast.lane_ends()
    """)
    op.execute(f"GRANT SELECT ON holdfast.lane_key TO {_MAY}, holdfast_reader")
    op.execute(f"REVOKE UPDATE ON holdfast.lane FROM {_MAY}")
    op.execute(f"GRANT UPDATE ({_CHANGED}) ON holdfast.lane TO {_MAY}")


def downgrade() -> None:
    op.execute(f"REVOKE UPDATE ({_CHANGED}) ON holdfast.lane FROM {_MAY}")
    op.execute(f"GRANT UPDATE ON holdfast.lane TO {_MAY}")
    for trigger in ("lane_truncated", "lane_deleted", "lane_begins"):
        op.execute(f"DROP TRIGGER {trigger} ON holdfast.lane")
    op.execute("DROP FUNCTION holdfast.lane_ends()")
    op.execute("DROP FUNCTION holdfast.lane_begins()")
    op.execute("""
        ALTER TABLE holdfast.lane
            DROP CONSTRAINT pk_lane,
            DROP COLUMN turn,
            ADD CONSTRAINT pk_lane PRIMARY KEY (endpoint_id, subject_id)
    """)
    op.execute("DROP TABLE holdfast.lane_key")
