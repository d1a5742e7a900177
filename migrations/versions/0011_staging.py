"""Staging tables, to which executors write a large batch before the driver's transaction.

Each batch has its own unlogged table. A function that runs as the owner creates it, so that
services do not need the privilege to create tables. It is dropped as a whole, so that no rows are
deleted one by one. An unused stage is dropped when the next one of its stream is opened.
"""

from alembic import op

revision = "0011"
down_revision = "0010"

FUNCTIONS = (
    "open_stage(text, bigint, bigint)",
    "analyze_stage(bigint)",
    "drop_stages(text, bigint)",
)


def upgrade() -> None:
    op.execute("""
        CREATE TABLE holdfast.stage (
            id        bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT pk_stage PRIMARY KEY,
            stream    text        NOT NULL,
            epoch     bigint      NOT NULL,
            batch_id  bigint      NOT NULL,
            opened_at timestamptz NOT NULL DEFAULT now()
        )
    """)
    op.execute("""
        CREATE FUNCTION holdfast.open_stage(of_stream text, of_epoch bigint, of_batch_id bigint)
        RETURNS bigint
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        DECLARE
            opened bigint;
        BEGIN
            INSERT INTO holdfast.stage (stream, epoch, batch_id)
            VALUES (of_stream, of_epoch, of_batch_id)
            RETURNING id INTO opened;
            -- A row is an entry, or was refused and has a reason. Nothing here outlives a crash of
            -- the server: the driver compares the number of rows with what the tasks told it.
            EXECUTE format('
                CREATE UNLOGGED TABLE holdfast.%I (
                    attempt     bigint NOT NULL,
                    row_hash    bytea  NOT NULL,
                    subject     text,
                    type        text,
                    key         uuid,
                    content     uuid,
                    occurred_at timestamptz,
                    priority    smallint,
                    traceparent text,
                    key_text    text,
                    head        text,
                    tail        text,
                    reason      holdfast.quarantine_reason,
                    detail      text,
                    row         text
                ) WITH (autovacuum_enabled = off)', 'stage_' || opened);
            EXECUTE format('GRANT SELECT, INSERT ON holdfast.%I TO holdfast_sink',
                'stage_' || opened);
            RETURN opened;
        END $$
    """)
    op.execute("""
        CREATE FUNCTION holdfast.analyze_stage(of_id bigint)
        RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            -- Without it the planner takes a stage for a few rows, and its joins for nested loops.
            EXECUTE format('ANALYZE holdfast.%I (attempt, key, content, reason)',
                'stage_' || of_id);
        END $$
    """)
    op.execute("""
        CREATE FUNCTION holdfast.drop_stages(of_stream text, of_epoch bigint)
        RETURNS integer
        LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $$
        DECLARE
            found   bigint;
            dropped integer := 0;
        BEGIN
            -- Only of this run and of older ones: a driver that came to life again must not take
            -- the table from under the tasks of its successor.
            FOR found IN
                SELECT id FROM holdfast.stage
                WHERE stream = of_stream AND epoch <= of_epoch
                ORDER BY id FOR UPDATE SKIP LOCKED
            LOOP
                BEGIN
                    EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', 'stage_' || found);
                    DELETE FROM holdfast.stage WHERE id = found;
                    dropped := dropped + 1;
                EXCEPTION WHEN lock_not_available THEN
                    -- A task that nobody waits for still writes: it is left for the next call.
                    NULL;
                END;
            END LOOP;
            RETURN dropped;
        END $$
    """)
    for function in FUNCTIONS:
        op.execute(f"REVOKE ALL ON FUNCTION holdfast.{function} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION holdfast.{function} TO holdfast_sink")
    op.execute("GRANT SELECT ON holdfast.stage TO holdfast_operator, holdfast_reader")


def downgrade() -> None:
    op.execute("""
        DO $$
        DECLARE found bigint;
        BEGIN
            FOR found IN SELECT id FROM holdfast.stage LOOP
                EXECUTE format('DROP TABLE IF EXISTS holdfast.%I', 'stage_' || found);
            END LOOP;
        END $$
    """)
    for function in FUNCTIONS:
        op.execute(f"DROP FUNCTION holdfast.{function}")
    op.execute("DROP TABLE holdfast.stage")
