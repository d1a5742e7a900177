"""Functions for an operator to repair a silenced subject.

The sink changes the transition states of a subject while it locks the subject's row. A repair locks
the same row with a function, because a grant that allows the lock would also allow operators to
change it. A state without any known entry is deleted.
"""

from alembic import op

revision = "0030"
down_revision = "0029"


def upgrade() -> None:
    op.execute("""
        CREATE FUNCTION holdfast.lock_subject(subject_id bigint) RETURNS void
        LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
            SELECT FROM holdfast.subject AS s WHERE s.id = subject_id FOR NO KEY UPDATE
        $$
    """)
    op.execute("REVOKE EXECUTE ON FUNCTION holdfast.lock_subject(bigint) FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION holdfast.lock_subject(bigint) TO holdfast_operator")
    op.execute("GRANT DELETE ON holdfast.transition TO holdfast_operator")


def downgrade() -> None:
    op.execute("REVOKE DELETE ON holdfast.transition FROM holdfast_operator")
    op.execute("DROP FUNCTION holdfast.lock_subject(bigint)")
