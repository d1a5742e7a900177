"""Request settings of an endpoint: envelope, headers, certificates and time limits."""

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.execute("CREATE TYPE holdfast.envelope_style AS ENUM ('standard', 'cloudevents')")
    # Defaults that do not change: the table is not rewritten.
    op.execute("""
        ALTER TABLE holdfast.endpoint
            ADD COLUMN envelope           holdfast.envelope_style NOT NULL DEFAULT 'standard',
            ADD COLUMN headers            jsonb             NOT NULL DEFAULT '{}',
            ADD COLUMN ca_ref             text,
            ADD COLUMN client_cert_ref    text,
            ADD COLUMN client_key_ref     text,
            ADD COLUMN budget_seconds     integer           NOT NULL DEFAULT 432000,
            ADD COLUMN breaker_threshold  integer           NOT NULL DEFAULT 10,
            ADD COLUMN slow_start_seconds integer           NOT NULL DEFAULT 60,
            ADD CONSTRAINT ck_endpoint_headers CHECK (jsonb_typeof(headers) = 'object'),
            ADD CONSTRAINT ck_endpoint_client_cert
                CHECK ((client_cert_ref IS NULL) = (client_key_ref IS NULL)),
            ADD CONSTRAINT ck_endpoint_budget_seconds
                CHECK (budget_seconds BETWEEN 60 AND 2592000),
            ADD CONSTRAINT ck_endpoint_breaker_threshold
                CHECK (breaker_threshold BETWEEN 0 AND 10000),
            ADD CONSTRAINT ck_endpoint_slow_start_seconds
                CHECK (slow_start_seconds BETWEEN 0 AND 86400)
    """)


def downgrade() -> None:
    op.execute("""
        ALTER TABLE holdfast.endpoint
            DROP COLUMN slow_start_seconds,
            DROP COLUMN breaker_threshold,
            DROP COLUMN budget_seconds,
            DROP COLUMN client_key_ref,
            DROP COLUMN client_cert_ref,
            DROP COLUMN ca_ref,
            DROP COLUMN headers,
            DROP COLUMN envelope
    """)
    op.execute("DROP TYPE holdfast.envelope_style")
