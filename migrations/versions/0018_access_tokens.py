"""Access to the admin API and the console: tokens, stored only as hashes, and logins.

A login is a token that a person's browser has for some hours, with the privileges of the token that
created it.
"""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.execute("CREATE TYPE holdfast.access_role AS ENUM ('viewer', 'operator', 'admin')")
    op.execute("""
        CREATE TABLE holdfast.access_token (
            id           uuid                 NOT NULL,
            name         text                 NOT NULL,
            role         holdfast.access_role NOT NULL,
            sha256       bytea                NOT NULL,
            created_at   timestamptz          NOT NULL DEFAULT now(),
            created_by   text                 NOT NULL,
            expires_at   timestamptz          NOT NULL,
            last_used_at timestamptz,
            revoked_at   timestamptz,
            login_of     uuid,
            CONSTRAINT pk_access_token PRIMARY KEY (id),
            CONSTRAINT fk_access_token_access_token
                FOREIGN KEY (login_of) REFERENCES holdfast.access_token (id),
            CONSTRAINT ck_access_token_name CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
            CONSTRAINT ck_access_token_sha256 CHECK (octet_length(sha256) = 32)
        )
    """)
    op.execute("CREATE UNIQUE INDEX uq_access_token_sha256 ON holdfast.access_token (sha256)")
    op.execute("""
        CREATE UNIQUE INDEX uq_access_token_name ON holdfast.access_token (name)
            WHERE login_of IS NULL AND revoked_at IS NULL
    """)
    op.execute("CREATE INDEX ix_access_token_login_of ON holdfast.access_token (login_of)")
    op.execute("GRANT SELECT, INSERT ON holdfast.access_token TO holdfast_operator")
    op.execute("""
        GRANT UPDATE (last_used_at, revoked_at) ON holdfast.access_token TO holdfast_operator
    """)
    # A login that ended is of no use to anybody; tokens stay, for the audit trail names them.
    op.execute("""
        CREATE FUNCTION holdfast.forget_logins() RETURNS bigint LANGUAGE sql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
            WITH gone AS (
                DELETE FROM holdfast.access_token
                WHERE login_of IS NOT NULL AND expires_at < now() - interval '1 day' RETURNING 1)
            SELECT count(*) FROM gone
        $$
    """)
    op.execute("REVOKE ALL ON FUNCTION holdfast.forget_logins() FROM PUBLIC")
    op.execute("GRANT EXECUTE ON FUNCTION holdfast.forget_logins() TO holdfast_operator")


def downgrade() -> None:
    op.execute("DROP FUNCTION holdfast.forget_logins()")
    op.execute("DROP TABLE holdfast.access_token")
    op.execute("DROP TYPE holdfast.access_role")
