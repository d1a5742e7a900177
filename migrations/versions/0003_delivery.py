"""The dispatcher's tables: endpoint, lane, attempt, dead_letter, dispatcher_instance."""

from alembic import op

revision = "0003"
down_revision = "0002"

TABLES = ("dispatcher_instance", "dead_letter", "attempt", "lane", "endpoint")


def upgrade() -> None:
    # secret_refs are references (env:VAR, file:PATH); secrets are never stored here.
    op.execute("""
        CREATE TABLE holdfast.endpoint (
            id                 integer GENERATED ALWAYS AS IDENTITY
                                                         CONSTRAINT pk_endpoint PRIMARY KEY,
            name               text                    NOT NULL CONSTRAINT uq_endpoint_name UNIQUE,
            url                text                    NOT NULL,
            types              text[]                  NOT NULL DEFAULT '{}',
            secret_refs        text[]                  NOT NULL,
            allow_cidrs        cidr[]                  NOT NULL DEFAULT '{}',
            connect_timeout_ms integer                 NOT NULL DEFAULT 5000,
            total_timeout_ms   integer                 NOT NULL DEFAULT 30000,
            concurrency        integer                 NOT NULL DEFAULT 64,
            rate_per_second    integer,
            schedule_seconds   integer[]               NOT NULL
                DEFAULT '{5,30,120,600,1800,7200,18000,36000,50400,72000}',
            order_policy       holdfast.order_policy   NOT NULL DEFAULT 'stop',
            state              holdfast.endpoint_state NOT NULL DEFAULT 'active',
            state_reason       text,
            starts_at          timestamptz,
            breaker            holdfast.breaker_state  NOT NULL DEFAULT 'closed',
            breaker_failures   integer                 NOT NULL DEFAULT 0,
            breaker_until      timestamptz,
            created_at         timestamptz             NOT NULL DEFAULT now(),
            updated_at         timestamptz             NOT NULL DEFAULT now(),
            CONSTRAINT ck_endpoint_name CHECK (name ~ '^[a-z0-9][a-z0-9_.-]{0,62}$'),
            CONSTRAINT ck_endpoint_url CHECK (url ~ '^https?://' AND length(url) <= 2048),
            CONSTRAINT ck_endpoint_secret_refs CHECK (cardinality(secret_refs) BETWEEN 1 AND 2),
            CONSTRAINT ck_endpoint_timeouts CHECK (
                connect_timeout_ms BETWEEN 1 AND total_timeout_ms AND total_timeout_ms <= 120000
            ),
            CONSTRAINT ck_endpoint_concurrency CHECK (concurrency BETWEEN 1 AND 1024),
            CONSTRAINT ck_endpoint_rate_per_second CHECK (rate_per_second >= 1)
        )
    """)
    # The only hot table: one row per endpoint and subject. A lane is idle while due_at is null and
    # leased while token is set. claimed_sequence is the highest sequence ever handed out.
    # attempt counts the head's attempts, rescued those of them that ended with their lease.
    op.execute("""
        CREATE TABLE holdfast.lane (
            endpoint_id        integer     NOT NULL,
            subject_id         bigint      NOT NULL,
            delivered_sequence bigint      NOT NULL,
            last_sequence      bigint      NOT NULL,
            claimed_sequence   bigint      NOT NULL DEFAULT 0,
            attempt            integer     NOT NULL DEFAULT 0,
            rescued            integer     NOT NULL DEFAULT 0,
            priority           smallint    NOT NULL,
            due_at             timestamptz,
            token              uuid,
            lease_until        timestamptz,
            head_created_at    timestamptz NOT NULL,
            CONSTRAINT pk_lane PRIMARY KEY (endpoint_id, subject_id),
            CONSTRAINT fk_lane_endpoint
                FOREIGN KEY (endpoint_id) REFERENCES holdfast.endpoint (id),
            CONSTRAINT ck_lane_sequences CHECK (0 <= delivered_sequence
                AND delivered_sequence <= last_sequence),
            CONSTRAINT ck_lane_attempt CHECK (attempt >= 0),
            CONSTRAINT ck_lane_rescued CHECK (rescued BETWEEN 0 AND attempt),
            CONSTRAINT ck_lane_lease CHECK ((token IS NULL) = (lease_until IS NULL))
        ) WITH (
            fillfactor = 50,
            autovacuum_vacuum_scale_factor = 0,
            autovacuum_vacuum_threshold = 2000,
            autovacuum_vacuum_cost_delay = 0
        )
    """)
    op.execute("""
        CREATE INDEX ix_lane_due ON holdfast.lane (endpoint_id, priority, due_at)
            WHERE due_at IS NOT NULL AND token IS NULL
    """)
    op.execute("""
        CREATE INDEX ix_lane_leased ON holdfast.lane (lease_until) WHERE token IS NOT NULL
    """)
    op.execute("""
        CREATE TABLE holdfast.attempt (
            endpoint_id integer          NOT NULL,
            subject_id  bigint           NOT NULL,
            sequence    bigint           NOT NULL,
            number      integer          NOT NULL,
            finished_at timestamptz      NOT NULL,
            token       uuid             NOT NULL,
            outcome     holdfast.outcome NOT NULL,
            status      smallint,
            duration_ms integer,
            error       text,
            response    text,
            receipt     text,
            retry_at    timestamptz,
            CONSTRAINT pk_attempt
                PRIMARY KEY (endpoint_id, subject_id, sequence, number, finished_at),
            CONSTRAINT ck_attempt_number CHECK (number >= 1),
            CONSTRAINT ck_attempt_delivered CHECK (
                outcome <> 'delivered' OR coalesce(status BETWEEN 200 AND 299, false)
            ),
            CONSTRAINT ck_attempt_response CHECK (octet_length(response) <= 4096)
        ) PARTITION BY RANGE (finished_at)
    """)
    op.execute("""
        CREATE TABLE holdfast.dead_letter (
            id          bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_dead_letter PRIMARY KEY,
            endpoint_id integer              NOT NULL,
            subject_id  bigint               NOT NULL,
            sequence    bigint               NOT NULL,
            key         uuid                 NOT NULL,
            created_at  timestamptz          NOT NULL,
            reason      holdfast.dead_reason NOT NULL,
            detail      text                 NOT NULL,
            attempts    integer              NOT NULL,
            died_at     timestamptz          NOT NULL DEFAULT now(),
            resolution  holdfast.dead_resolution,
            resolved_at timestamptz,
            resolved_by text,
            CONSTRAINT fk_dead_letter_endpoint
                FOREIGN KEY (endpoint_id) REFERENCES holdfast.endpoint (id),
            CONSTRAINT ck_dead_letter_resolution
                CHECK ((resolution IS NULL) = (resolved_at IS NULL))
        )
    """)
    op.execute("""
        CREATE UNIQUE INDEX uq_dead_letter_open
            ON holdfast.dead_letter (endpoint_id, subject_id, sequence) WHERE resolution IS NULL
    """)
    op.execute("""
        CREATE TABLE holdfast.dispatcher_instance (
            id           uuid        NOT NULL CONSTRAINT pk_dispatcher_instance PRIMARY KEY,
            host         text        NOT NULL,
            pid          integer     NOT NULL,
            version      text        NOT NULL,
            started_at   timestamptz NOT NULL DEFAULT now(),
            heartbeat_at timestamptz NOT NULL DEFAULT now(),
            in_flight    integer     NOT NULL DEFAULT 0,
            draining     boolean     NOT NULL DEFAULT false
        )
    """)


def downgrade() -> None:
    for table in TABLES:
        op.execute(f"DROP TABLE holdfast.{table}")
