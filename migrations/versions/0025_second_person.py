"""Approval by a second person: owners of tokens, and proposals.

A token stores its owner and a replay its planner, so that two tokens of one person do not count as
two people. A proposal stores exactly what is done after a second person approves it.

The downgrade revokes each valid token whose owner is not its name: without owners, two tokens of
one person would count as two people, also after the next upgrade. Create such tokens again.
"""

from alembic import op

revision = "0025"
down_revision = "0024"

_CHANGED = (
    "state, applied_at, finished_at, counts, approved_by, approved_at, cancelled_by, cancelled_at"
)
"""What becomes of a replay; what was planned, and by whom, stays."""


def upgrade() -> None:
    _give_tokens_an_owner()
    _give_replays_a_person()
    _make_proposals()


def _give_tokens_an_owner() -> None:
    op.execute("ALTER TABLE holdfast.access_token ADD COLUMN owner text")
    # Until now a token was the person whose login name it bears.
    op.execute("UPDATE holdfast.access_token SET owner = name")
    op.execute("""
        ALTER TABLE holdfast.access_token
            ALTER COLUMN owner SET NOT NULL,
            ADD CONSTRAINT ck_access_token_owner CHECK (owner ~ '^[a-z0-9][a-z0-9_.@+-]{0,126}$')
    """)
    # The previous version adds tokens without an owner while both run.
    op.execute("""
        CREATE FUNCTION holdfast.token_owner() RETURNS trigger
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            NEW.owner := coalesce(NEW.owner, NEW.name);
            RETURN NEW;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER token_owner BEFORE INSERT ON holdfast.access_token
            FOR EACH ROW EXECUTE FUNCTION holdfast.token_owner()
    """)


def _give_replays_a_person() -> None:
    op.execute("ALTER TABLE holdfast.replay ADD COLUMN person text")
    op.execute("UPDATE holdfast.replay SET person = lower(regexp_replace(actor, '^token ', ''))")
    op.execute("REVOKE UPDATE ON holdfast.replay FROM holdfast_operator")
    op.execute(f"GRANT UPDATE ({_CHANGED}) ON holdfast.replay TO holdfast_operator")


def _make_proposals() -> None:
    op.execute("""
        CREATE TABLE holdfast.proposal (
            id                 uuid        NOT NULL,
            verb               text        NOT NULL,
            target             text        NOT NULL,
            detail             jsonb       NOT NULL,
            sha256             bytea       NOT NULL,
            reason             text        NOT NULL,
            actor              text        NOT NULL,
            person             text        NOT NULL,
            created_at         timestamptz NOT NULL DEFAULT now(),
            approved_by        text,
            approved_by_person text,
            approved_at        timestamptz,
            applied_by         text,
            applied_at         timestamptz,
            cancelled_by       text,
            cancelled_at       timestamptz,
            CONSTRAINT pk_proposal PRIMARY KEY (id),
            CONSTRAINT ck_proposal_sha256 CHECK (octet_length(sha256) = 32),
            CONSTRAINT ck_proposal_reason CHECK (length(reason) BETWEEN 1 AND 2000),
            CONSTRAINT ck_proposal_second_person CHECK (
                (approved_at IS NULL) = (approved_by_person IS NULL)
                AND (approved_at IS NULL) = (approved_by IS NULL)
                AND approved_by_person IS DISTINCT FROM person
            ),
            CONSTRAINT ck_proposal_applied CHECK (
                applied_at IS NULL OR (approved_at IS NOT NULL AND cancelled_at IS NULL)
            )
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX uq_proposal_open ON holdfast.proposal (verb, target, sha256)
            WHERE applied_at IS NULL AND cancelled_at IS NULL
    """)
    op.execute("CREATE INDEX ix_proposal_created_at ON holdfast.proposal (created_at, id)")
    # What was proposed never changes: whoever approves it approves what is applied.
    op.execute("GRANT SELECT ON holdfast.proposal TO holdfast_operator")
    # Nor does it come approved: only what says what will be done, and who wants it.
    op.execute("""
        GRANT INSERT (id, verb, target, detail, sha256, reason, actor, person)
            ON holdfast.proposal TO holdfast_operator
    """)
    op.execute("""
        GRANT UPDATE (approved_by, approved_by_person, approved_at, applied_by, applied_at,
            cancelled_by, cancelled_at) ON holdfast.proposal TO holdfast_operator
    """)


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.proposal")
    op.execute(f"REVOKE UPDATE ({_CHANGED}) ON holdfast.replay FROM holdfast_operator")
    op.execute("GRANT UPDATE ON holdfast.replay TO holdfast_operator")
    op.execute("ALTER TABLE holdfast.replay DROP COLUMN person")
    op.execute("DROP TRIGGER token_owner ON holdfast.access_token")
    op.execute("DROP FUNCTION holdfast.token_owner()")
    op.execute("""
        UPDATE holdfast.access_token SET revoked_at = now()
        WHERE owner <> name AND revoked_at IS NULL AND expires_at > now()
    """)
    op.execute("ALTER TABLE holdfast.access_token DROP COLUMN owner")
