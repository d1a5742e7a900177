"""A diverged replay that a person accepted: who, and when.

Step: expand. A sink from before does not read it: it refuses the replay as it did.
Locks: divergence, ACCESS EXCLUSIVE, for nullable columns and for as long as it takes to read the
table once; it has a row for each diverged replay.
"""

from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    op.execute("""
        ALTER TABLE holdfast.divergence
            ADD COLUMN accepted_at timestamptz,
            ADD COLUMN accepted_by text,
            ADD CONSTRAINT ck_divergence_accepted
                CHECK ((accepted_at IS NULL) = (accepted_by IS NULL)) NOT VALID
    """)
    op.execute("ALTER TABLE holdfast.divergence VALIDATE CONSTRAINT ck_divergence_accepted")
    # A person accepts: whoever may record a replay cannot record one that is accepted.
    op.execute("""
        CREATE FUNCTION holdfast.refuse_accepted() RETURNS trigger
        LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            RAISE insufficient_privilege USING MESSAGE = 'a new divergence is not accepted';
        END $$
    """)
    op.execute("""
        CREATE TRIGGER new_divergence BEFORE INSERT ON holdfast.divergence
        FOR EACH ROW WHEN (NEW.accepted_at IS NOT NULL)
        EXECUTE FUNCTION holdfast.refuse_accepted()
    """)
    op.execute(
        "GRANT UPDATE (accepted_at, accepted_by) ON holdfast.divergence TO holdfast_operator"
    )


def downgrade() -> None:
    op.execute("DROP TRIGGER new_divergence ON holdfast.divergence")
    op.execute("DROP FUNCTION holdfast.refuse_accepted()")
    op.execute("""
        ALTER TABLE holdfast.divergence DROP COLUMN accepted_at, DROP COLUMN accepted_by
    """)
