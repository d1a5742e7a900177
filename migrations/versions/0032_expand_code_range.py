"""The oldest code that the database serves, and the code of the processes that run.

Step: expand. Code from before demands exactly its own revision, so this revision serves code from
0032 on: that code also works on 0031, and replaces the older one before the upgrade.
Locks: alembic_version, ACCESS EXCLUSIVE, for as long as it takes to change a table of one row.
"""

from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.execute("ALTER TABLE holdfast.alembic_version ADD COLUMN serves_from text")
    op.execute("UPDATE holdfast.alembic_version SET serves_from = '0032'")
    op.execute("""
        CREATE TABLE holdfast.code_session (
            kind       text        NOT NULL,
            name       text        NOT NULL,
            revision   text        NOT NULL,
            works_from text        NOT NULL,
            seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
            CONSTRAINT pk_code_session PRIMARY KEY (kind, name),
            CONSTRAINT ck_code_session_kind CHECK (kind IN ('sink', 'dispatcher', 'api'))
        )
    """)
    op.execute("""
        GRANT SELECT, INSERT, UPDATE ON holdfast.code_session
        TO holdfast_sink, holdfast_dispatcher, holdfast_operator
    """)
    op.execute("GRANT SELECT ON holdfast.code_session TO holdfast_reader")


def downgrade() -> None:
    op.execute("DROP TABLE holdfast.code_session")
    op.execute("ALTER TABLE holdfast.alembic_version DROP COLUMN serves_from")
